#pragma once

#include <torch/version.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

/// The differences between the versions of LibTorch that README.md lists. No
/// other file depends on the version.
namespace ddp::detail {

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 10
/// A base class for backends that override `setGroupUid`. LibTorch 2.9 does not
/// allow this override, and c10d sets only the name of the outer backend.
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
