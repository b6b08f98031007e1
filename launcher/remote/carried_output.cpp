#include <launcher/remote/carried_output.h>

#include <array>
#include <cerrno>

#include <unistd.h>

namespace ddp {
namespace {

constexpr size_t kLongestHeld = 64 * 1024;

} // namespace

bool CarriedStream::read_some() {
  if (!source_) {
    return false;
  }
  std::array<char, 16384> bytes;
  const ssize_t size = read(source_.get(), bytes.data(), bytes.size());
  if (size > 0) {
    held_.append(bytes.data(), static_cast<size_t>(size));
  } else if (size == 0 || (errno != EINTR && errno != EAGAIN)) {
    source_.reset();
  }
  return size > 0;
}

bool CarriedStream::take(const std::string& mark) {
  const size_t at = held_.find(mark);
  if (at != std::string::npos) {
    held_.erase(at, mark.size());
  }
  return at != std::string::npos;
}

void CarriedStream::pass_on() {
  const size_t line_end = held_.rfind('\n');
  const bool is_all = !source_ || held_.size() > kLongestHeld;
  const size_t end = is_all           ? held_.size()
      : line_end == std::string::npos ? 0
                                      : line_end + 1;
  sink_->append(std::string_view(held_).substr(0, end));
  held_.erase(0, end);
}

} // namespace ddp
