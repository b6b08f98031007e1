#pragma once

#include <chrono>
#include <memory>
#include <string>

namespace ddp::detail {

/// Warns of a wait that takes long, once, from another thread: "ddp: WHO has
/// waited for 10 s in CALL".
class WaitNotice {
 public:
  WaitNotice(
      std::chrono::milliseconds after,
      const std::string& who,
      const std::string& call);
  WaitNotice(const WaitNotice&) = delete;
  WaitNotice& operator=(const WaitNotice&) = delete;
  /// The wait is over.
  ~WaitNotice();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// "ddp: WHO has waited for 10 s in CALL".
void warn_of_wait(
    std::chrono::milliseconds time,
    const std::string& who,
    const std::string& call);

} // namespace ddp::detail
