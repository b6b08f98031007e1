#pragma once

#include <optional>
#include <string>

#include <common/file_descriptor.h>

namespace ddp {

/// An address and port in numbers.
struct SocketAddress {
  std::string host;
  int port = 0;
};

/// "node0:29400", "[::1]:29400".
std::string describe_endpoint(const std::string& host, int port);

/// Where a socket is bound; port 0 where it is no TCP socket.
SocketAddress local_address(int socket);

/// Where this host reaches its own listening socket: at its address, at the
/// loopback one where it listens on all.
SocketAddress own_address(int listener);

/// A TCP socket that listens already, so that no one else can take its port
/// between the moment it is chosen and the moment it is used.
struct Listener {
  FileDescriptor socket;
  int port = 0;
};

/// Binds and listens on host:port with O_CLOEXEC; port 0 takes a free one.
/// Throws LaunchError naming the address.
Listener listen_on(const std::string& host, int port);

/// The same at a numeric address; none if that cannot be, and errno says why.
std::optional<Listener> try_listen_on(const std::string& address, int port);

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
