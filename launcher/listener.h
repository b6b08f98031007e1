#pragma once

#include <optional>
#include <string>

#include <common/file_descriptor.h>

namespace ddp {

/// A TCP socket that listens already, so that nobody else can take its port
/// between the moment it is chosen and the moment it is used.
struct Listener {
  FileDescriptor socket;
  int port = 0;
};

/// Binds and listens on host:port with O_CLOEXEC; port 0 takes a free one.
/// Throws LaunchError naming the address.
Listener listen_on(const std::string& host, int port);

/// The same at a numeric address; none where that cannot be, and errno says
/// why.
std::optional<Listener> try_listen_on(const std::string& address, int port);

} // namespace ddp
