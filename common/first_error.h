#pragma once

#include <mutex>
#include <string>

namespace ddp::detail {

/// The reason why a shared object is no longer usable: the first error that any
/// thread has set.
class FirstError {
 public:
  /// Records the first error. Returns whether `reason`, which must not be
  /// empty, is the first.
  bool set(const std::string& reason) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!reason_.empty()) {
      return false;
    }
    reason_ = reason;
    return true;
  }

  /// Empty if there is no error yet.
  std::string reason() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return reason_;
  }

 private:
  mutable std::mutex mutex_;
  std::string reason_;
};

} // namespace ddp::detail
