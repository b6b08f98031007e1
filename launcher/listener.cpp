#include <launcher/listener.h>

#include <cerrno>
#include <cstring>

#include <netdb.h>
#include <sys/socket.h>

#include <common/address_list.h>
#include <common/scheduler/launch_error.h>
#include <launcher/rendezvous/route.h>

namespace ddp {
namespace {

using detail::AddressList;
using detail::look_up;

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
  const int error = errno;
  listener.reset();
  errno = error;
  return listener;
}

std::optional<Listener> listen_on_any(const AddressList& list) {
  for (const addrinfo* each = list.get(); each != nullptr;
       each = each->ai_next) {
    if (FileDescriptor listener = try_listen(*each)) {
      const int bound = local_address(listener.get()).port;
      return Listener{std::move(listener), bound};
    }
  }
  return std::nullopt;
}

} // namespace

Listener listen_on(const std::string& host, int port) {
  int error = 0;
  const AddressList list = look_up(host, port, 0, &error);
  if (error != 0) {
    throw LaunchError(
        kExitInternal,
        "cannot resolve --master-addr '" + host + "': " + gai_strerror(error) +
            "; on one node leave --master-addr out");
  }
  if (auto listener = listen_on_any(list)) {
    return std::move(*listener);
  }
  throw LaunchError(
      kExitInternal,
      "cannot listen on " + host + ":" + std::to_string(port) + ": " +
          std::strerror(errno) +
          "; leave --master-port out to get a free port");
}

std::optional<Listener> try_listen_on(const std::string& address, int port) {
  int error = 0;
  const AddressList list = look_up(address, port, AI_NUMERICHOST, &error);
  errno = EADDRNOTAVAIL; // where the list is empty
  return listen_on_any(list);
}

} // namespace ddp
