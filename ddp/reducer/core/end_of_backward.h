#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ddp::detail {

/// Calls a function once, at the end of the outermost backward.
///
/// Must be called inside a backward. A backward may run inside another
/// (activation checkpointing). The engine runs a callback from the inner one
/// before the rest of the outer one, so the callback is queued again in the
/// outer one. Beyond the engine's nesting limit (60), another thread runs the
/// inner backward, which cannot be detected. The function is then called early,
/// at the end of that thread's part.
///
/// If the backward ends by an exception, `abandoned` is called instead. If
/// `owner` is gone by then, neither is called. A call keeps `owner` alive.
///
/// Functions for the end of one backward are called in the order of their
/// names. They may thus wait for other ranks, on which they arrived in another
/// order.
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

  /// Queues a callback of the engine at the end of the current backward.
  static void queue(std::shared_ptr<EndOfBackward> self);

 private:
  /// The objects that have reached the end of the outermost backward.
  using Arrived = std::vector<std::shared_ptr<EndOfBackward>>;

  static void arrive(const std::shared_ptr<EndOfBackward>& self);
  static void call_all(Arrived& arrived);

  std::string name_;
  std::weak_ptr<void> owner_;
  std::function<void()> reached_;
  std::function<void()> abandoned_;
};

} // namespace ddp::detail
