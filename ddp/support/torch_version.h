#pragma once

#include <torch/version.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

/// What differs between the versions of LibTorch that README.md lists. No other
/// file asks for the version.
namespace ddp::detail {

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 10
/// A base for backends that override `setGroupUid`, which LibTorch 2.9 lets
/// nobody override: c10d sets the name of the outer backend alone there.
class Backend : public c10d::Backend {
 public:
  using c10d::Backend::Backend;

  virtual void setGroupUid(const std::string& uid) {
    c10d::Backend::setGroupUid(uid);
  }
};
#else
using Backend = c10d::Backend;
#endif

} // namespace ddp::detail
