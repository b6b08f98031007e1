#include <ddp/rendezvous/first_reachable.h>

#include <common/address_list.h>

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

namespace ddp::detail {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kRound = std::chrono::milliseconds(2000);
constexpr auto kPause = std::chrono::milliseconds(100);

/// Starts to connect; -1 where that fails at once.
int begin_connecting(const std::string& address, int64_t port) {
  int error = 0;
  const auto list = look_up(address, port, AI_NUMERICHOST, &error);
  if (error != 0) {
    return -1;
  }
  const int fd =
      socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0 && connect(fd, list->ai_addr, list->ai_addrlen) != 0 &&
      errno != EINPROGRESS) {
    close(fd);
    return -1;
  }
  return fd;
}

bool is_connected(int fd) {
  int error = 0;
  socklen_t length = sizeof(error);
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 &&
      error == 0;
}

/// The first of the sockets that gets connected; -1 where none does in time.
int first_connected(std::vector<pollfd>& sockets, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - Clock::now());
    const bool pending =
        std::any_of(sockets.begin(), sockets.end(), [](const pollfd& entry) {
          return entry.fd >= 0;
        });
    if (!pending || left.count() <= 0 ||
        poll(sockets.data(), sockets.size(), static_cast<int>(left.count())) <=
            0) {
      return -1;
    }
    for (size_t i = 0; i < sockets.size(); ++i) {
      auto& entry = sockets[i];
      if (entry.fd >= 0 && entry.revents != 0) {
        const bool connected = is_connected(entry.fd);
        if (connected) {
          return static_cast<int>(i);
        }
        close(entry.fd);
        entry.fd = -1;
      }
    }
  }
}

} // namespace

std::string first_reachable(
    const std::vector<std::string>& addresses,
    int64_t port,
    std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (Clock::now() < deadline) {
    std::vector<pollfd> sockets;
    for (const auto& address : addresses) {
      sockets.push_back({begin_connecting(address, port), POLLOUT, 0});
    }
    const int first =
        first_connected(sockets, std::min(deadline, Clock::now() + kRound));
    for (const auto& entry : sockets) {
      if (entry.fd >= 0) {
        close(entry.fd);
      }
    }
    if (first >= 0) {
      return addresses[first];
    }
    std::this_thread::sleep_for(kPause);
  }
  return "";
}

} // namespace ddp::detail
