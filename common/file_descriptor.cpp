#include <common/file_descriptor.h>

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ddp {

void FileDescriptor::reset() {
  if (fd_ >= 0) {
    ::close(fd_);
    fd_ = -1;
  }
}

Pipe make_pipe() {
  int ends[2];
  check_call(::pipe2(ends, O_CLOEXEC), "cannot create a pipe");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

FileDescriptor above_standard_streams(FileDescriptor file) {
  if (file.get() > STDERR_FILENO) {
    return file;
  }
  return FileDescriptor(check_call(
      fcntl(file.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1),
      "cannot duplicate a descriptor"));
}

int check_call(int result, const char* what) {
  if (result == -1) {
    throw std::system_error(errno, std::generic_category(), what);
  }
  return result;
}

int write_all(int fd, std::string_view text, int timeout_milliseconds) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd writable{fd, POLLOUT, 0};
      if (::poll(&writable, 1, timeout_milliseconds) == 0) {
        return ETIMEDOUT;
      }
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

FileDescriptor open_process(pid_t pid) {
#ifdef SYS_pidfd_open
  return FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
#else
  static_cast<void>(pid);
  errno = ENOSYS;
  return FileDescriptor();
#endif
}

} // namespace ddp
