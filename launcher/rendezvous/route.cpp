#include <launcher/rendezvous/route.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <poll.h>
#include <sys/socket.h>

#include <common/address_list.h>

namespace ddp {
namespace {

constexpr int kConnectMilliseconds = 2000;

using AddressOf = int (*)(int, sockaddr*, socklen_t*);

SocketAddress numeric_address(int socket, AddressOf address_of) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (address_of(socket, generic, &size) != 0 ||
      getnameinfo(
          generic,
          size,
          host,
          sizeof host,
          port,
          sizeof port,
          NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return {};
  }
  return {host, std::atoi(port)};
}

// Sets errno where there is none.
std::optional<Route> try_address(const addrinfo& address) {
  const auto connection = connect_within(address, kConnectMilliseconds);
  if (!connection) {
    return std::nullopt;
  }
  const SocketAddress local = local_address(connection.get());
  const SocketAddress remote = numeric_address(connection.get(), getpeername);
  errno = ECONNREFUSED;
  if (remote.host.empty()) { // gone again
    return std::nullopt;
  }
  // Where nobody listens TCP lets a socket connect to itself, if the port was
  // chosen for it. Closed as usual, it would hold the port for a minute.
  if (local.host == remote.host && local.port == remote.port) {
    const linger reset{1, 0};
    setsockopt(connection.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    return std::nullopt;
  }
  return Route{local.host, remote.host};
}

} // namespace

SocketAddress local_address(int socket) {
  return numeric_address(socket, getsockname);
}

SocketAddress own_address(int listener) {
  SocketAddress address = local_address(listener);
  if (address.host == "0.0.0.0") {
    address.host = "127.0.0.1";
  } else if (address.host == "::") {
    address.host = "::1";
  }
  return address;
}

FileDescriptor connect_within(const addrinfo& address, int milliseconds) {
  FileDescriptor connection(
      socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (connect(connection.get(), address.ai_addr, address.ai_addrlen) == 0) {
    return connection;
  }
  int error = errno;
  if (error == EINPROGRESS) {
    error = ETIMEDOUT;
    socklen_t size = sizeof error;
    pollfd connecting{connection.get(), POLLOUT, 0};
    if (poll(&connecting, 1, milliseconds) == 1) {
      getsockopt(connection.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
  }
  if (error != 0) {
    connection.reset();
  }
  errno = error;
  return connection;
}

std::optional<Route> find_route(
    const std::string& host,
    int port,
    std::string* why) {
  int error = 0;
  const auto list = detail::look_up(host, port, 0, &error);
  if (error != 0) {
    *why = gai_strerror(error);
  }
  for (const addrinfo* each = list.get(); each != nullptr;
       each = each->ai_next) {
    if (auto route = try_address(*each)) {
      return route;
    }
    *why = std::strerror(errno);
  }
  return std::nullopt;
}

} // namespace ddp
