#pragma once

#include <optional>
#include <string>

#include <netdb.h>

#include <common/file_descriptor.h>

namespace ddp {

/// An address and port in numbers.
struct SocketAddress {
  std::string host;
  int port = 0;
};

/// Where a socket is bound; port 0 where it is no TCP socket.
SocketAddress local_address(int socket);

/// Where this host reaches its own listening socket: at its address, at the
/// loopback one where it listens on all.
SocketAddress own_address(int listener);

/// Connects to a TCP address within so many milliseconds, by a socket that does
/// not block. None where that cannot be, and errno says why.
FileDescriptor connect_within(const addrinfo& address, int milliseconds);

/// The two ends of a connection.
struct Route {
  std::string local;
  std::string remote;
};

/// Resolves the host and connects to each of its addresses in turn, for two
/// seconds each: the first route that works. The connection is closed again.
/// Where there is none, `why` is the reason, of the last address.
std::optional<Route> find_route(
    const std::string& host,
    int port,
    std::string* why);

} // namespace ddp
