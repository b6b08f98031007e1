#pragma once

#include <ddp/backends/common/backend.h>

namespace ddp::backends::gloo {

/// LibTorch's ProcessGroupGloo, for CPU tensors. Collective.
c10::intrusive_ptr<c10d::Backend> create(const BackendOptions& options);

/// The network interface that gloo uses, of which `named` is the group's: as in
/// torch.distributed, GLOO_SOCKET_IFNAME comes first. Empty: that of an
/// address.
std::string interface_of(const std::string& named);

} // namespace ddp::backends::gloo
