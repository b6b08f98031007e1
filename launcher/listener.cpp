#include <launcher/listener.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <launcher/launch_error.h>

namespace ddp {
namespace {

int bound_port(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  check_call(
      getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size),
      "cannot read a socket's address");
  const auto port = address.ss_family == AF_INET6
      ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
      : reinterpret_cast<sockaddr_in*>(&address)->sin_port;
  return ntohs(port);
}

FileDescriptor try_listen(const addrinfo& address) {
  FileDescriptor listener(
      socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1; // a connection in TIME_WAIT shall not hold the port
  if (listener &&
      setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) ==
          0 &&
      bind(listener.get(), address.ai_addr, address.ai_addrlen) == 0 &&
      listen(listener.get(), SOMAXCONN) == 0) {
    return listener;
  }
  return FileDescriptor();
}

} // namespace

Listener listen_on(const std::string& host, int port) {
  const std::string where = host + ":" + std::to_string(port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    throw LaunchError(
        kExitInternal,
        "cannot resolve --master-addr '" + host + "': " + gai_strerror(error) +
            "; on one node leave --master-addr out");
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(
      found, &freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (FileDescriptor listener = try_listen(*each)) {
      const int bound = bound_port(listener.get());
      return {std::move(listener), bound};
    }
  }
  throw LaunchError(
      kExitInternal,
      "cannot listen on " + where + ": " + std::strerror(errno) +
          "; leave --master-port out to get a free port");
}

} // namespace ddp
