#pragma once

#include <common/file_descriptor.h>

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>

namespace ddp::detail {

/// A non-blocking socket that is connected to `address`; if it cannot be within
/// `timeout`, empty, and `errno` has the reason. The kernel alone would try for
/// two minutes if a firewall drops packets.
inline FileDescriptor connect_within(
    const addrinfo& address,
    std::chrono::nanoseconds timeout) {
  FileDescriptor connection(
      socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int fd = connection.get();
  int error = connect(fd, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(timeout);
    error = ETIMEDOUT;
    socklen_t size = sizeof error;
    pollfd connecting{fd, POLLOUT, 0};
    const auto patience = std::clamp<int64_t>(left.count(), 0, INT_MAX);
    if (poll(&connecting, 1, static_cast<int>(patience)) == 1) {
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    }
  }
  if (error != 0) {
    connection.reset();
  }
  errno = error;
  return connection;
}

} // namespace ddp::detail
