#include <launcher/rendezvous/server.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <common/scheduler/launch_error.h>
#include <launcher/cli/network_values.h>
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
  const std::string descriptor = std::to_string(socket);
  const std::vector<std::string> environment = helper_environment();
  std::vector<char*> variables;
  for (const std::string& each : environment) {
    variables.push_back(const_cast<char*>(each.c_str()));
  }
  variables.push_back(nullptr);
  execle(
      program.c_str(),
      "ddprun-store",
      "--rdzv-server",
      descriptor.c_str(),
      nullptr,
      variables.data());
  throw LaunchError(
      kExitInternal, "cannot run " + program + ": " + std::strerror(errno));
}

} // namespace ddp
