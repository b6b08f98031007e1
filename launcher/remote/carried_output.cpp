#include <launcher/remote/carried_output.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>

#include <unistd.h>

namespace ddp {
namespace {

constexpr size_t kLongestHeld = 64 * 1024;

} // namespace

void Outlet::write_some() {
  // A pipe that poll calls ready takes so much without waiting.
  const size_t size = std::min<size_t>(text_.size(), PIPE_BUF);
  const ssize_t written = write(fd_, text_.data(), size);
  if (written >= 0) {
    text_.erase(0, static_cast<size_t>(written));
  } else if (errno != EINTR && errno != EAGAIN) {
    text_.clear(); // its reader has gone: that costs output, not the job
  }
}

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

void CarriedStream::pass_on() {
  const size_t line_end = held_.rfind('\n');
  const bool is_all = !source_ || held_.size() > kLongestHeld;
  const size_t end = is_all           ? held_.size()
      : line_end == std::string::npos ? 0
                                      : line_end + 1;
  outlet_->add(held_.substr(0, end));
  held_.erase(0, end);
}

} // namespace ddp
