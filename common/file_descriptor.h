#pragma once

#include <string_view>
#include <utility>

#include <sys/types.h>

namespace ddp {

/// Owns a file descriptor; closes it when destroyed. -1 means none.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() {
    reset();
  }

  int get() const {
    return fd_;
  }
  explicit operator bool() const {
    return fd_ >= 0;
  }

  /// Closes the descriptor now.
  void reset();

  /// Returns the descriptor, which the caller must close.
  [[nodiscard]] int release() {
    return std::exchange(fd_, -1);
  }

 private:
  int fd_ = -1;
};

/// The two ends of a pipe, both closed by exec.
struct Pipe {
  FileDescriptor read_end;
  FileDescriptor write_end;
};

/// Opens a pipe with O_CLOEXEC on both ends. Throws std::system_error.
Pipe make_pipe();

/// Returns `file`, or its duplicate with O_CLOEXEC if its number is one of 0 to
/// 2, which a program without standard streams leaves free. Throws
/// std::system_error.
FileDescriptor above_standard_streams(FileDescriptor file);

/// Returns a descriptor that becomes readable when the process ends; empty,
/// with errno ENOSYS, on kernels before 5.3, and with another errno after a
/// failure.
FileDescriptor open_process(pid_t pid);

/// Returns a system call's result; throws std::system_error with `what` and
/// errno if it is -1.
int check_call(int result, const char* what);

/// Writes the whole `text`. Whenever a descriptor, blocking or not, accepts no
/// more bytes, waits for at most the timeout (-1 for no limit). Returns 0 or
/// the errno of the failure.
int write_all(int fd, std::string_view text, int timeout_milliseconds = -1);

} // namespace ddp
