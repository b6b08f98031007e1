#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <random>
#include <string>

namespace ddp::test {

inline bool is_free(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool bound =
      bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return bound;
}

/// Keeps a port from other tests until this process ends.
inline bool reserve(int port) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un name{AF_UNIX, {}};
  const auto text = "ddp test port " + std::to_string(port);
  text.copy(name.sun_path + 1, sizeof name.sun_path - 1);
  const bool bound =
      bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0;
  if (!bound) {
    close(fd);
  }
  return bound;
}

/// A loopback TCP port for a process that starts later. The port is below
/// Linux's ephemeral ports, which concurrent tests use constantly and could
/// take before that process.
inline int free_port() {
  std::random_device random;
  std::uniform_int_distribution<int> ports(10000, 32767);
  int port = ports(random);
  while (!reserve(port) || !is_free(port)) {
    port = ports(random);
  }
  return port;
}

} // namespace ddp::test
