#pragma once

#include <ddp/process_group/collective_wait.h>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <future>
#include <optional>
#include <thread>

namespace ddp::detail {

/// Ends a backend's collectives that would not end by themselves.
///
/// A thread that waits for a collective looks at the failure store meanwhile; a
/// GPU's stream cannot, nor can a thread that waits for the stream. For them
/// this one looks, from a thread of its own. Where another rank has failed, or
/// the backend has found an error (a timeout, a lost connection), or a launch
/// takes longer than a collective may, or the store has ended and rank 0 with
/// it, it breaks the group, tells the other ranks, and aborts the backend: its
/// kernels end, their results are of no use, and the group's next use throws
/// the reason.
class Watchdog {
 public:
  /// `group` must outlive it, and is only read and broken.
  Watchdog(ProcessGroupImpl& group, c10::intrusive_ptr<c10d::Backend> backend);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  /// Takes up to ten seconds: where it is about to abort.
  ~Watchdog();

 private:
  void run();
  bool is_stopped_within(std::chrono::milliseconds time);
  std::optional<WaitFailure> find_failure();
  bool is_launching() const;
  void await_launch();
  bool is_store_gone();
  void end(WaitFailure failure);

  ProcessGroupImpl& group_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  std::optional<std::chrono::steady_clock::time_point> store_lost_;
  /// The launch that was under way at the last look; none: -1.
  int64_t seen_launch_ = -1;
  std::promise<void> stop_;
  const std::future<void> stopped_ = stop_.get_future();
  std::thread thread_;
};

} // namespace ddp::detail
