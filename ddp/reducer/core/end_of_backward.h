#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ddp::detail {

/// Calls a function once, at the end of the outermost backward pass.
///
/// Use this class only inside a backward pass, which may run inside another
/// pass (activation checkpointing). The engine runs a callback from the inner
/// pass before the rest of the outer pass, so the callback is queued again in
/// the outer pass. If another thread runs the end of the inner pass (beyond the
/// engine's nesting limit of 60, or on another device), this cannot be
/// detected. The function is then called early, at the end of that thread's
/// part.
///
/// If the pass ends with an exception, `abandoned` is called instead. If
/// `owner` no longer exists, neither function is called. A call keeps `owner`
/// alive.
///
/// Functions for the end of one pass are called in the order of their names.
/// The functions may thus wait for other ranks, on which they were registered
/// in another order.
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

  /// Queues a callback of the engine at the end of the current backward pass.
  static void queue(std::shared_ptr<EndOfBackward> self);

 private:
  /// The objects that have reached the end of the outermost backward pass.
  using Arrived = std::vector<std::shared_ptr<EndOfBackward>>;

  static void arrive(const std::shared_ptr<EndOfBackward>& self);
  static void call_all(Arrived& arrived);

  std::string name_;
  std::weak_ptr<void> owner_;
  std::function<void()> reached_;
  std::function<void()> abandoned_;
};

} // namespace ddp::detail
