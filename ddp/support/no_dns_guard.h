#pragma once

#include <string>

namespace ddp::detail {

/// While this object exists, this thread queries no name server, and the
/// process does not warn about names that are not found. For messages, LibTorch
/// looks up the name of each address to which its store connects. A name server
/// that does not answer, or that many ranks query at once, would delay each
/// rank by seconds. Does nothing if `host`, to which the store connects, is
/// itself a name.
class NoDnsGuard {
 public:
  explicit NoDnsGuard(const std::string& host);
  NoDnsGuard(const NoDnsGuard&) = delete;
  NoDnsGuard& operator=(const NoDnsGuard&) = delete;
  ~NoDnsGuard();

 private:
  bool active_;
  int name_servers_ = 0;
};

} // namespace ddp::detail
