#pragma once

#include <functional>
#include <memory>

namespace ddp::detail {

/// Calls a function once, at the end of the outermost backward.
///
/// Must be constructed inside a backward. A backward may run inside another
/// (activation checkpointing); a callback that the engine is given inside the
/// inner one runs before the rest of the outer one, so it is handed on
/// outwards. Past the engine's limit of nesting (60) another thread runs the
/// inner backward and cannot tell: the function is called early, at the end of
/// the part that thread runs.
///
/// Where the backward ends by an exception, `abandoned` is called instead.
class EndOfBackward {
 public:
  static void call(
      std::function<void()> reached,
      std::function<void()> abandoned);

  EndOfBackward(std::function<void()> reached, std::function<void()> abandoned);
  EndOfBackward(const EndOfBackward&) = delete;
  EndOfBackward& operator=(const EndOfBackward&) = delete;
  ~EndOfBackward();

  /// Asks the engine to come back when the current backward ends.
  static void queue(std::shared_ptr<EndOfBackward> self);

 private:
  static void arrive(const std::shared_ptr<EndOfBackward>& self);

  std::function<void()> reached_;
  std::function<void()> abandoned_;
};

} // namespace ddp::detail
