#pragma once

#include <common/first_error.h>
#include <ddp/failure/failure_store.h>
#include <ddp/process_group.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <limits>
#include <map>

namespace ddp::backends::mpi {
class Communicator;
}

namespace ddp {

struct LaunchEnvironment;

namespace detail {

class Watchdog;
class WatchdogThread;

struct ProcessGroupImpl {
  ProcessGroupImpl();
  ProcessGroupImpl(const ProcessGroupImpl&) = delete;
  ProcessGroupImpl& operator=(const ProcessGroupImpl&) = delete;
  /// Ends what `connect` began.
  ~ProcessGroupImpl();

  /// Whether all ranks share a host.
  bool on_one_host() const;

  /// Records that ranks may exchange values over it.
  void set_used() {
    unused_since.store(
        std::numeric_limits<uint64_t>::max(), std::memory_order_relaxed);
  }

  /// As `unused_since` says, although means of numbers may have been exchanged.
  bool is_unused_by(uint64_t trained) const {
    return trained > unused_since && (shuffles || !has_metrics);
  }

  static ProcessGroupImpl& of(const ProcessGroup& group) {
    return *group.impl_;
  }
  static ProcessGroup group_of(std::shared_ptr<ProcessGroupImpl> impl) {
    return ProcessGroup(std::move(impl));
  }

  int64_t rank = 0;
  int64_t size = 1;
  int64_t local_rank = 0;
  int64_t local_size = 1;
  c10::Device device{c10::kCPU};
  std::string backend = "none";
  /// Whether it was default-constructed, neither formed nor made from another.
  bool by_default = false;
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// A wait of this length is reported.
  std::chrono::milliseconds wait_notice = std::chrono::seconds(10);
  /// The address of this host that the other ranks can reach; empty for a
  /// wrapped group, which cannot be connected a second time.
  std::string address;
  /// The network interface option; empty: that of `address`.
  std::string interface;
  /// Equal for the ranks of one host, by rank; empty for a group of one.
  std::vector<std::string> hosts;
  c10::intrusive_ptr<c10d::Store> store;
  /// Whether the store ends with this process.
  bool hosts_store = false;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  /// The MPI communicator, if the backend is mpi; duplicates share it, since
  /// each backend duplicates it.
  std::shared_ptr<backends::mpi::Communicator> communicator;
  /// Numbers the groups made from this one, equally on all ranks.
  int64_t children = 0;
  /// Whether it was split, and its parts may average alone.
  bool is_split = false;
  /// Numbers the Reducers on this group, likewise.
  int64_t reducers = 0;
  /// Numbers the comparisons without a wait, by their subject.
  std::map<std::string, int64_t> comparisons;
  bool shut_down = false;
  /// Whether the ranks' parameters and gradients are compared.
  bool checks_replicas = true;
  /// Checkpoints that still compare them: one may precede the training.
  int replica_checks = 3;
  /// Whether a `Join` lives on this group; duplicates share it.
  std::shared_ptr<bool> joined = std::make_shared<bool>(false);
  /// Where ranks report failures; null without other ranks or without a store.
  /// Duplicates share it.
  std::shared_ptr<FailureStore> failure_store;
  /// This group's name there.
  std::string scope;
  /// Until a reduction or gather over the group, or a group made from it:
  /// autograd's sequence number when `init_process_group` formed it. If it has
  /// grown, this thread has trained. Largest in other groups and afterwards.
  std::atomic<uint64_t> unused_since{std::numeric_limits<uint64_t>::max()};
  /// Collectives started so far, equal on all ranks that are as far.
  std::atomic<int64_t> launched{0};
  /// Why it cannot be used.
  FirstError first_error;
  /// Whether a collective was left without waiting for its end.
  std::atomic<bool> abandoned{false};
  /// Held while a collective is launched, so that no abort frees its memory.
  std::recursive_mutex launching;
  /// Watches this group and all that are made from it.
  std::shared_ptr<WatchdogThread> watchdog_thread;
  /// For collectives on a GPU. Last: it reads the others.
  std::unique_ptr<Watchdog> watchdog;
};

/// The number of groups that this process has formed and not made from others.
int64_t groups_formed();

/// Warns if `group` is `ProcessGroup()`, a group of one, although this process
/// is one of several: `user` was given it, and `consequence`.
void check_not_forgotten(
    const ProcessGroup& group,
    const char* user,
    const char* consequence);

/// The scope of the group with this number, which it counts: "" for 0,
/// "/group_1" for 1. The number is the largest `groups_formed` of its ranks.
std::string scope_of_group(int64_t number, int64_t size);

/// From now on, reports this process's progress and, unless `options` forbid
/// it, the reason of its end to the launcher.
void report_to_launcher(const ProcessGroupOptions& options);

/// Forms the group of the ranks that `environment` names, or a group of one.
/// `options` must be complete; `communicator` reaches the ranks over MPI if the
/// backend is mpi. Collective.
ProcessGroup form_group(
    const ProcessGroupOptions& options,
    LaunchEnvironment environment,
    const std::shared_ptr<backends::mpi::Communicator>& communicator);

/// Sends rank 0's address over `communicator`, if the ranks do not have it yet.
/// Collective.
void meet_over_mpi(
    LaunchEnvironment& environment,
    backends::mpi::Communicator& communicator,
    std::chrono::milliseconds timeout);

/// Connects the ranks of `impl`, whose other members are filled in, and returns
/// when all of them are connected. Collective.
void connect(ProcessGroupImpl& impl);

/// Ends the connections of `impl`. If a collective may never end, the backend,
/// which would wait for it, ends on a separate thread and this returns
/// immediately. NCCL completes running collectives, or aborts them if the group
/// is broken or an exception is in flight, and gets up to 10 s.
void disconnect(ProcessGroupImpl& impl) noexcept;

/// The tensors of all ranks, which are of one shape. Call it within `guarded`.
/// Collective.
std::vector<at::Tensor> gather_equal(
    ProcessGroupImpl& group,
    const at::Tensor& tensor);

/// Returns when every rank has called it; `operation` is for the message of an
/// error. Collective.
void wait_for_all_ranks(ProcessGroupImpl& group, const char* operation);

} // namespace detail
} // namespace ddp
