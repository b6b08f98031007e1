#pragma once

#include <mutex>
#include <string>

namespace ddp::detail {

/// Why something shared is of no more use: the first of the errors that any
/// thread has set.
class FirstError {
 public:
  /// Returns whether `reason`, which is not empty, is the first.
  bool set(const std::string& reason) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!reason_.empty()) {
      return false;
    }
    reason_ = reason;
    return true;
  }

  /// Empty while there is none.
  std::string reason() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return reason_;
  }

 private:
  mutable std::mutex mutex_;
  std::string reason_;
};

} // namespace ddp::detail
