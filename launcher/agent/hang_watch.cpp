#include <launcher/agent/hang_watch.h>

namespace ddp {

HangWatch::HangWatch(
    std::chrono::milliseconds hang_timeout,
    std::chrono::milliseconds start_timeout,
    Time start)
    : hang_timeout_(hang_timeout),
      start_timeout_(start_timeout),
      start_(start),
      last_progress_(start) {}

bool HangWatch::enabled() const {
  return hang_timeout_.count() > 0 || start_timeout_.count() > 0;
}

bool HangWatch::hangs(const std::vector<Beat>& beats, Time now) {
  std::vector<uint64_t> joined;
  for (const Beat& each : beats) {
    if (each.joined) {
      joined.push_back(each.beats);
    }
  }
  if (joined != last_) {
    last_ = joined;
    last_progress_ = now;
  }
  return hang_timeout_.count() > 0 && !joined.empty() &&
      now - last_progress_ >= hang_timeout_;
}

std::vector<size_t> HangWatch::late(const std::vector<Beat>& beats, Time now)
    const {
  std::vector<size_t> found;
  if (start_timeout_.count() == 0 || now - start_ < start_timeout_) {
    return found;
  }
  for (size_t i = 0; i < beats.size(); ++i) {
    if (!beats[i].joined) {
      found.push_back(i);
    }
  }
  return found;
}

void HangWatch::resume(Time suspended, Time now) {
  start_ += now - suspended;
  last_progress_ = now;
}

} // namespace ddp
