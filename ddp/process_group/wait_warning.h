#pragma once

#include <chrono>
#include <future>
#include <string>

namespace ddp::detail {

/// Warns of a long wait, once, from another thread: "ddp: WHO has waited for 10
/// s in CALL". The wait ends with this object.
class WaitWarning {
 public:
  WaitWarning(
      std::chrono::milliseconds after,
      const std::string& who,
      const std::string& call);

 private:
  /// Destroyed when the wait is over, which ends the other thread.
  std::promise<void> end_;
};

/// "ddp: WHO has waited for 10 s in CALL".
void warn_of_wait(
    std::chrono::milliseconds time,
    const std::string& who,
    const std::string& call);

} // namespace ddp::detail
