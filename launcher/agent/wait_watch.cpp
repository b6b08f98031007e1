#include <launcher/agent/wait_watch.h>

namespace ddp {

std::vector<size_t> WaitWatch::waiting(
    const std::vector<std::optional<uint64_t>>& beats,
    Time now) {
  ranks_.resize(beats.size());
  std::vector<size_t> found;
  for (size_t i = 0; i < beats.size(); ++i) {
    Rank& rank = ranks_[i];
    if (!beats[i] || rank.beats != beats[i]) {
      rank = {beats[i], now};
    } else if (now - rank.since >= kLongTime) {
      found.push_back(i);
    }
  }
  return found;
}

void WaitWatch::resume(Time suspended, Time now) {
  for (Rank& each : ranks_) {
    each.since += now - suspended;
  }
}

} // namespace ddp
