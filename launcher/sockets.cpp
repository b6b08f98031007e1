#include <launcher/sockets.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <sys/socket.h>

#include <common/address_list.h>
#include <common/connection.h>
#include <common/scheduler/launch_error.h>

namespace ddp {
namespace {

using detail::AddressList;
using detail::connect_within;
using detail::look_up;

constexpr std::chrono::seconds kConnectTimeout(2);

// The address of a socket or its peer.
SocketAddress numeric_address(
    int socket,
    int (*address_of)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  const int flags = NI_NUMERICHOST | NI_NUMERICSERV;
  if (address_of(socket, generic, &size) != 0 ||
      getnameinfo(generic, size, host, sizeof host, port, sizeof port, flags) !=
          0) {
    return {};
  }
  return {host, std::atoi(port)};
}

// Sets errno if there is none.
std::optional<Listener> try_listener(const addrinfo& address) {
  FileDescriptor listener(
      socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int fd = listener.get();
  const int yes = 1; // a connection in TIME_WAIT must not hold the port
  const bool listens = listener &&
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
      bind(fd, address.ai_addr, address.ai_addrlen) == 0 &&
      listen(fd, SOMAXCONN) == 0;
  if (!listens) {
    return std::nullopt;
  }
  return Listener{std::move(listener), local_address(fd).port};
}

// Sets errno if there is none.
std::optional<Route> try_route(const addrinfo& address) {
  const auto connection = connect_within(address, kConnectTimeout);
  if (!connection) {
    return std::nullopt;
  }
  const SocketAddress local = local_address(connection.get());
  const SocketAddress remote = numeric_address(connection.get(), getpeername);
  errno = ECONNREFUSED;
  if (remote.host.empty()) { // closed again
    return std::nullopt;
  }
  // If no process listens, TCP lets a socket connect to itself if it happened
  // to get this port. A normal close would hold the port for a minute.
  if (local.host == remote.host && local.port == remote.port) {
    const linger reset{1, 0};
    setsockopt(connection.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    return std::nullopt;
  }
  return Route{local.host, remote.host};
}

// The result of `attempt` for the first address for which it returns one.
template <typename Result>
std::optional<Result> first_of(
    const AddressList& list,
    std::optional<Result> (*attempt)(const addrinfo&)) {
  std::optional<Result> result;
  for (const addrinfo* each = list.get(); each != nullptr && !result;
       each = each->ai_next) {
    result = attempt(*each);
  }
  return result;
}

} // namespace

std::string describe_endpoint(const std::string& host, int port) {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

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

Listener listen_on(const std::string& host, int port) {
  int error = 0;
  const AddressList list = look_up(host, port, 0, &error);
  if (error != 0) {
    throw LaunchError(
        kExitInternal,
        "cannot resolve --master-addr '" + host + "': " + gai_strerror(error) +
            "; on one node, omit --master-addr");
  }
  if (auto listener = first_of(list, try_listener)) {
    return std::move(*listener);
  }
  throw LaunchError(
      kExitInternal,
      "cannot listen on " + host + ":" + std::to_string(port) + ": " +
          std::strerror(errno) +
          (port == 0 ? "; on one node, omit --master-addr"
                     : "; omit --master-port to use a free port"));
}

std::optional<Listener> try_listen_on(const std::string& address, int port) {
  int error = 0;
  const AddressList list = look_up(address, port, AI_NUMERICHOST, &error);
  errno = EADDRNOTAVAIL; // if the list is empty
  return first_of(list, try_listener);
}

std::optional<Route> find_route(
    const std::string& host,
    int port,
    std::string* why) {
  int error = 0;
  const AddressList list = look_up(host, port, 0, &error);
  auto route = first_of(list, try_route);
  *why = error != 0 ? gai_strerror(error) : std::strerror(errno);
  return route;
}

} // namespace ddp
