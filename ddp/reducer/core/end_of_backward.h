#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ddp::detail {

/// Calls a function once, at the end of the outermost backward.
///
/// `call` must come from inside a backward. A backward may run inside another
/// (activation checkpointing); a callback that the engine is given inside the
/// inner one runs before the rest of the outer one, so it is handed on
/// outwards. Past the engine's limit of nesting (60) another thread runs the
/// inner backward and cannot tell: the function is called early, at the end of
/// the part that thread runs.
///
/// Where the backward ends by an exception, `abandoned` is called instead;
/// neither is where `owner` is gone by then, which lives while they run.
///
/// Those that wait for the end of one backward are called in the order of their
/// names, so that ranks on which they came in different order may wait for each
/// other in them.
class EndOfBackward {
 public:
  static void call(
      std::string name,
      std::weak_ptr<void> owner,
      std::function<void()> reached,
      std::function<void()> abandoned);

  EndOfBackward(
      std::string name,
      std::weak_ptr<void> owner,
      std::function<void()> reached,
      std::function<void()> abandoned);
  EndOfBackward(const EndOfBackward&) = delete;
  EndOfBackward& operator=(const EndOfBackward&) = delete;
  ~EndOfBackward();

  /// Asks the engine to come back when the current backward ends.
  static void queue(std::shared_ptr<EndOfBackward> self);

 private:
  /// Those that have come to the end of the outermost backward.
  using Arrived = std::vector<std::shared_ptr<EndOfBackward>>;

  static void arrive(const std::shared_ptr<EndOfBackward>& self);
  static void call_all(Arrived& arrived);

  std::string name_;
  std::weak_ptr<void> owner_;
  std::function<void()> reached_;
  std::function<void()> abandoned_;
};

} // namespace ddp::detail
