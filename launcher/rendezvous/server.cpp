#include <launcher/rendezvous/server.h>

#include <cerrno>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include <launcher/command_line/network_values.h>
#include <launcher/launch_error.h>
#include <launcher/rendezvous/endpoint.h>
#include <launcher/rendezvous/route.h>
#include <launcher/store_process.h>

namespace ddp {
void serve_log(const NodeOptions& nodes) {
  const std::string program = find_store_program();
  const auto listener = listen_at_endpoint(nodes);
  const int socket = listener.value().socket.get(); // hosts_log is set
  write_all(
      STDERR_FILENO,
      "ddprun: serves the nodes' rendezvous at " +
          describe_endpoint(local_address(socket).host, listener->port) + "\n");
  check_call(fcntl(socket, F_SETFD, 0), "cannot hand the socket on");
  execl(
      program.c_str(),
      "ddprun-store",
      "--rdzv-server",
      std::to_string(socket).c_str(),
      nullptr);
  throw LaunchError(
      kExitInternal, "cannot run " + program + ": " + std::strerror(errno));
}

} // namespace ddp
