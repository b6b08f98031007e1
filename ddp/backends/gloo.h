#pragma once

#include <ddp/backends/backend.h>

namespace ddp::backends::gloo {

/// LibTorch's ProcessGroupGloo, for CPU tensors. Collective.
c10::intrusive_ptr<c10d::Backend> create(const BackendOptions& options);

} // namespace ddp::backends::gloo
