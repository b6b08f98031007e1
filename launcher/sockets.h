#pragma once

#include <optional>
#include <string>

#include <common/file_descriptor.h>

namespace ddp {

/// An address and a port.
struct SocketAddress {
  std::string host;
  int port = 0;
};

/// "node0:29400", "[::1]:29400".
std::string describe_endpoint(const std::string& host, int port);

/// The address of a bound socket; port 0 if it is not a TCP socket.
SocketAddress local_address(int socket);

/// The address at which this host reaches its listening socket: the socket's
/// address, or the loopback address if it listens at all addresses.
SocketAddress own_address(int listener);

/// A TCP socket that already listens, so that no other process can take the
/// port.
struct Listener {
  FileDescriptor socket;
  int port = 0;
};

/// Binds and listens on host:port with O_CLOEXEC; port 0 means any free port.
/// Throws a LaunchError that names the address.
Listener listen_on(const std::string& host, int port);

/// Like listen_on(), at a numeric address; returns none and sets errno on
/// failure.
std::optional<Listener> try_listen_on(const std::string& address, int port);

/// The addresses of the two ends of a connection.
struct Route {
  std::string local;
  std::string remote;
};

/// Resolves the host and connects to each of its addresses in turn, for up to
/// two seconds each. Returns the first route that works, and closes the
/// connection. If no route works, `why` receives the reason for the last
/// failure.
std::optional<Route> find_route(
    const std::string& host,
    int port,
    std::string* why);

} // namespace ddp
