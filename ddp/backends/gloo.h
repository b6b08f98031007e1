#pragma once

#include <ddp/backends/common/backend.h>

namespace ddp::backends::gloo {

/// Creates LibTorch's ProcessGroupGloo, for CPU tensors. Collective.
c10::intrusive_ptr<c10d::Backend> create(const BackendOptions& options);

/// The network interface for gloo: GLOO_SOCKET_IFNAME, as in torch.distributed,
/// or else `named`, the group's interface. If empty, gloo uses the interface of
/// the address.
std::string interface_of(const std::string& named);

} // namespace ddp::backends::gloo
