#include <ddp/backends/gloo.h>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>

namespace ddp::backends::gloo {

c10::intrusive_ptr<c10d::Backend> create(const BackendOptions& options) {
  using c10d::ProcessGroupGloo;
  auto gloo_options = ProcessGroupGloo::Options::create(options.timeout);
  // As in torch.distributed, the user's choice of interface comes first.
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  gloo_options->devices.push_back(
      interface && *interface ? ProcessGroupGloo::createDeviceForInterface(
                                    interface)
                              : ProcessGroupGloo::createDeviceForHostname(
                                    options.address));
  return c10::make_intrusive<ProcessGroupGloo>(
      options.store, options.rank, options.size, gloo_options);
}

} // namespace ddp::backends::gloo
