#pragma once

#include <ddp/process_group/collective_wait.h>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace ddp::detail {

/// A group whose collectives run on a GPU, as `Watchdog` sees it.
class WatchedGroup : public std::enable_shared_from_this<WatchedGroup> {
 public:
  WatchedGroup(
      ProcessGroupImpl& group,
      c10::intrusive_ptr<c10d::Backend> backend);

  /// How long to wait between two looks.
  std::chrono::milliseconds interval() const;
  /// Looks whether something may be wrong. If so, another thread finds out
  /// what, and ends the group: that takes its time.
  void look();
  /// After it nothing reads the group any more. Takes up to ten seconds: if an
  /// abort has begun.
  void stop();

 private:
  bool is_suspicious();
  void attend();
  bool is_stopped_within(std::chrono::milliseconds time);
  std::optional<WaitFailure> find_failure();
  bool is_launching() const;
  void await_launch();
  bool is_store_gone();
  void end(WaitFailure failure);

  ProcessGroupImpl& group_;
  const c10::intrusive_ptr<c10d::Backend> backend_;
  std::promise<void> stop_;
  const std::future<void> stopped_ = stop_.get_future();
  /// Held by who reads the group. The members below are its.
  std::mutex mutex_;
  /// Whether the group has been stopped, or ended.
  bool over_ = false;
  std::optional<std::chrono::steady_clock::time_point> store_lost_;
  /// The launch that was under way at the last look; none: -1.
  int64_t seen_launch_ = -1;
};

/// The thread that looks at the watched groups, one for a group and all that
/// are made of it. It starts with the first group.
class WatchdogThread {
 public:
  WatchdogThread() = default;
  WatchdogThread(const WatchdogThread&) = delete;
  WatchdogThread& operator=(const WatchdogThread&) = delete;
  ~WatchdogThread();

  void add(std::shared_ptr<WatchedGroup> group);
  void remove(const std::shared_ptr<WatchedGroup>& group);

 private:
  std::vector<std::shared_ptr<WatchedGroup>> groups();
  void run();

  std::mutex mutex_;
  std::vector<std::shared_ptr<WatchedGroup>> groups_;
  std::promise<void> stop_;
  std::thread thread_;
};

/// Ends a group's collectives that would not end by themselves, while it lives.
///
/// A thread that waits for a collective looks at the failure store meanwhile; a
/// GPU's stream cannot, nor can a thread that waits for the stream. For them
/// the watchdog looks. If another rank has failed, or the backend has found an
/// error (a timeout, a lost connection), or a launch takes longer than a
/// collective may, or the store has ended and rank 0 with it, it breaks the
/// group, tells the other ranks, and aborts the backend: its kernels end, their
/// results are of no use, and the group's next use throws the reason.
class Watchdog {
 public:
  /// `group` must outlive it, and is only read and broken.
  Watchdog(ProcessGroupImpl& group, c10::intrusive_ptr<c10d::Backend> backend);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

 private:
  const std::shared_ptr<WatchdogThread> thread_;
  const std::shared_ptr<WatchedGroup> group_;
};

} // namespace ddp::detail
