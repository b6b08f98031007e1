#pragma once

#include <ddp/backends/common/backend_work.h>

#include <functional>
#include <string>
#include <vector>

namespace ddp::backends::hierarchical {

/// A collective that runs on the backend's thread.
class Operation final : public BackendWork {
 public:
  /// `body` throws where it fails.
  Operation(
      const Member& member,
      OperationInfo info,
      std::function<void()> body);

 private:
  friend class Queue;

  /// Why it failed; empty if it did not.
  std::string run();
  /// Sets the outcome. Returns the future, if somebody has it.
  Future settle(const std::string& error);
  bool ends_until(Clock::time_point until) override;

  std::function<void()> body_;
};

} // namespace ddp::backends::hierarchical
