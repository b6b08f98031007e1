#include <ddp/backends/gloo.h>

#include <ddp/support/signals_blocked.h>

#include <c10/util/env.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace ddp::backends::gloo {

std::string interface_of(const std::string& named) {
  const auto users = c10::utils::get_env("GLOO_SOCKET_IFNAME").value_or("");
  return users.empty() ? named : users;
}

c10::intrusive_ptr<c10d::Backend> create(const BackendOptions& options) {
  using c10d::ProcessGroupGloo;
  // Threads of gloo then get an error if a peer has ended.
  const detail::SignalsBlocked blocked({SIGPIPE});
  auto gloo_options = ProcessGroupGloo::Options::create(options.timeout);
  const auto interface = interface_of(options.interface);
  gloo_options->devices.push_back(
      interface.empty()
          ? ProcessGroupGloo::createDeviceForHostname(options.address)
          : ProcessGroupGloo::createDeviceForInterface(interface));
  return c10::make_intrusive<ProcessGroupGloo>(
      options.store, options.rank, options.size, gloo_options);
}

} // namespace ddp::backends::gloo
