#pragma once

#include <vector>

namespace ddp::detail {

/// Takes signals while it lives, and remembers that one came. The process has
/// at most one at a time: handlers are the process's.
class SignalHandlers {
 public:
  /// Throws `c10::Error` where there is one, `c10::ValueError` where a number
  /// is no signal's that can be caught.
  explicit SignalHandlers(const std::vector<int>& signals);
  SignalHandlers(const SignalHandlers&) = delete;
  SignalHandlers& operator=(const SignalHandlers&) = delete;
  /// Puts the handlers from before back, unless others have been installed
  /// since.
  ~SignalHandlers();

  /// Whether one of the signals has come.
  bool received() const;

 private:
  void restore();

  std::vector<int> signals_;
};

} // namespace ddp::detail
