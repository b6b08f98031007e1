#pragma once

#include <ddp/backends/hierarchical/operation.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace ddp::backends::hierarchical {

/// Runs operations one after another, in the order of the calls, on a thread of
/// its own. The first that fails breaks it: later ones fail with its reason.
class Queue {
 public:
  /// `on_failure` is called on that thread when an operation has failed.
  explicit Queue(std::function<void()> on_failure);
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  /// Waits for what is under way.
  ~Queue();

  void push(const c10::intrusive_ptr<Operation>& operation);
  void break_off(const std::string& reason);
  /// Why it is of no more use; empty while it works.
  std::string breakage() const;
  uint64_t pushed() const;

 private:
  void run();

  const std::function<void()> on_failure_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<c10::intrusive_ptr<Operation>> waiting_;
  std::string breakage_;
  uint64_t pushed_ = 0;
  bool ending_ = false;
  /// Last: it uses the others.
  std::thread thread_;
};

} // namespace ddp::backends::hierarchical
