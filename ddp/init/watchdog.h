#pragma once

#include <ddp/process_group/collective_wait.h>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace ddp::detail {

/// A group whose collectives run on a GPU, and which the watchdog thread
/// checks.
class WatchedGroup : public std::enable_shared_from_this<WatchedGroup> {
 public:
  WatchedGroup(
      ProcessGroupImpl& group,
      c10::intrusive_ptr<c10d::Backend> backend);

  /// The time between two checks.
  std::chrono::milliseconds interval() const;
  /// Checks for signs of a failure. If the check finds any, another thread
  /// determines the reason and ends the group, which may take long.
  void look();
  c10::DeviceType device_type() const {
    return group_.device.type();
  }
  /// Whether this is the group with this scope, or was made from that group.
  bool belongs_to(const std::string& scope) const {
    return concerns(scope, group_.scope);
  }
  /// Whether collectives may have ended with invalid results.
  bool is_aborted() const;
  /// Returns when no thread reads the group any longer. Takes up to ten seconds
  /// if an abort has begun.
  void stop();

 private:
  bool is_suspicious();
  void investigate();
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
  /// Held while the group is read; guards the members below.
  std::mutex mutex_;
  /// Whether `stop` was called or the group has ended.
  bool over_ = false;
  std::optional<std::chrono::steady_clock::time_point> store_lost_;
  /// The launch that was in progress at the last check; -1 if none was.
  int64_t seen_launch_ = -1;
  /// Set before the abort, in which kernels end.
  std::atomic<bool> aborted_{false};
};

/// The thread that checks a group and all groups made from that group. The
/// thread starts with the first group.
class WatchdogThread {
 public:
  WatchdogThread() = default;
  WatchdogThread(const WatchdogThread&) = delete;
  WatchdogThread& operator=(const WatchdogThread&) = delete;
  ~WatchdogThread();

  void add(std::shared_ptr<WatchedGroup> group);
  void remove(const std::shared_ptr<WatchedGroup>& group);

  /// Waits for the groups' devices. Returns whether no group that belongs to
  /// `scope` has been aborted.
  bool await_valid_results(const std::string& scope);

 private:
  std::vector<std::shared_ptr<WatchedGroup>> groups();
  void run();

  std::mutex mutex_;
  std::vector<std::shared_ptr<WatchedGroup>> groups_;
  std::promise<void> stop_;
  std::thread thread_;
};

/// Ends those collectives of a group that would not end by themselves, while
/// the Watchdog exists.
///
/// A thread that waits for a collective also checks the failure store; a GPU's
/// stream, or a thread that waits for the stream, cannot. Instead, the watchdog
/// checks whether another rank has failed, or whether the backend has found an
/// error (a timeout, a lost connection). The watchdog also checks whether a
/// launch exceeds the timeout of a collective, or the store has ended with rank
/// 0. In these cases the watchdog breaks the group, reports to the other ranks,
/// and aborts the backend: the backend's kernels end, their results are
/// invalid, and the next use of the group throws the reason.
class Watchdog {
 public:
  /// `group` must outlive the watchdog, which only reads and breaks it.
  Watchdog(ProcessGroupImpl& group, c10::intrusive_ptr<c10d::Backend> backend);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

 private:
  const std::shared_ptr<WatchdogThread> thread_;
  const std::shared_ptr<WatchedGroup> group_;
};

} // namespace ddp::detail
