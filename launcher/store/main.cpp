// ddprun-store DESCRIPTOR: serves c10d's key-value store at a listening socket
// that it inherited, until it is killed. A process of its own, because loading
// LibTorch takes longer than all that ddprun does.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace {

int port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return -1;
  }
  return ntohs(
      address.ss_family == AF_INET6
          ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
          : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

void serve(int listener) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port_of(listener));
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = listener;
  const c10d::TCPStore store("127.0.0.1", options);
  for (;;) {
    pause();
  }
}

} // namespace

int main(int argc, char** argv) {
  const int listener = argc == 2 ? std::atoi(argv[1]) : -1;
  if (port_of(listener) <= 0) {
    std::fputs("ddprun-store is started by ddprun\n", stderr);
    return 2;
  }
  try {
    serve(listener);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ddprun: cannot serve the store: %s\n", error.what());
  }
  _exit(1);
}
