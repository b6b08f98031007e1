#include <launcher/output/sink.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ddp {
namespace {

FileDescriptor open_again(int fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return FileDescriptor(
      open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

} // namespace

Sink::Sink(int fd) : fd_(fd) {
  struct stat info {};
  fstat(fd, &info);
  socket_ = S_ISSOCK(info.st_mode);
  if (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)) {
    own_ = open_again(fd);
  }
  pipe_ = S_ISFIFO(info.st_mode) && !own_;
  waits_ = !socket_ && !pipe_ && !own_;
  fd_ = own_ ? own_.get() : fd;
}

void Sink::append(std::string_view text) {
  if (fd_ >= 0) {
    text_ += std::exchange(gap_, "");
    text_ += text;
  }
}

int Sink::write() {
  int error = 0;
  if (waits_) {
    error = write_all(fd_, text_);
    took(waiting());
  }
  while (error == 0 && waiting() > 0) {
    const ssize_t size = write_some();
    if (size >= 0) {
      took(static_cast<size_t>(size));
    } else if (errno == EAGAIN) {
      if (!blocked_) {
        blocked_ = true;
        last_taken_ = Clock::now();
      }
      return 0;
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  blocked_ = false;
  if (error != 0 && waits_) { // a full disk may have space again
    gap_ = std::string("\nddprun: output is missing here (") +
        std::strerror(error) + ")\n";
    return std::exchange(failed_, true) ? 0 : error;
  }
  if (error != 0) {
    fd_ = -1;
    took(waiting());
  }
  return error;
}

ssize_t Sink::write_some() {
  const char* start = text_.data() + done_;
  if (pipe_) {
    pollfd room{fd_, POLLOUT, 0}; // for so many bytes at least
    if (poll(&room, 1, 0) == 0) {
      errno = EAGAIN;
      return -1;
    }
    return ::write(fd_, start, std::min<size_t>(waiting(), PIPE_BUF));
  }
  return socket_ ? send(fd_, start, waiting(), MSG_DONTWAIT | MSG_NOSIGNAL)
                 : ::write(fd_, start, waiting());
}

void Sink::took(size_t size) {
  done_ += size;
  if (size > 0 && blocked_) {
    last_taken_ = Clock::now();
  }
  if (done_ == text_.size()) {
    text_.clear();
    done_ = 0;
  } else if (done_ > text_.size() / 2) {
    text_.erase(0, done_);
    done_ = 0;
  }
}

std::string dropped_output(const std::string& stream, int error) {
  return "ddprun: cannot write to standard " + stream + " (" +
      std::strerror(error) + "); the ranks' output to it is dropped\n";
}

} // namespace ddp
