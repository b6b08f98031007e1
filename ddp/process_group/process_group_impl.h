#pragma once

#include <common/first_error.h>
#include <ddp/failure/failure_store.h>
#include <ddp/process_group.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <unistd.h>

#include <limits>
#include <map>

namespace ddp::backends::mpi {
class Communicator;
}

namespace ddp {

struct LaunchEnvironment;

namespace debug {
struct CallOrder;
}

namespace detail {

class Watchdog;
class WatchdogThread;

struct ProcessGroupImpl {
  ProcessGroupImpl();
  ProcessGroupImpl(const ProcessGroupImpl&) = delete;
  ProcessGroupImpl& operator=(const ProcessGroupImpl&) = delete;
  /// Ends the connections that `connect` made.
  ~ProcessGroupImpl();

  /// Whether all ranks share a host.
  bool on_one_host() const;

  /// Whether this process is a forked child, which has copies of the group's
  /// connections but none of its threads.
  bool is_forked_copy() const {
    return getpid() != process;
  }

  /// Records that ranks may exchange values over this group.
  void set_used() {
    unused_since.store(
        std::numeric_limits<uint64_t>::max(), std::memory_order_relaxed);
  }

  /// Like `set_used`, for calls that may average the ranks' nets: other groups
  /// then need not be used, unless this one is `ProcessGroup()`.
  void set_averaged() {
    set_used();
    averages.fetch_add(by_default ? 0 : 1, std::memory_order_relaxed);
  }

  /// Expects that a thread which trains after sequence number `now` uses the
  /// group, or averages over another group.
  void expect_use(uint64_t now) {
    unused_since = now;
    averages_before = averages;
  }

  /// Whether a thread with sequence number `trained` has trained without using
  /// the group, and without averages over other groups. `ddp::sum` and
  /// `ddp::mean` count as use of the group, unless a sampler of the group
  /// shuffles.
  bool is_unused_by(uint64_t trained) const {
    return trained > unused_since && averages == averages_before &&
        (shuffles || !has_metrics);
  }

  static ProcessGroupImpl& of(const ProcessGroup& group) {
    return *group.impl_;
  }
  static ProcessGroup group_of(std::shared_ptr<ProcessGroupImpl> impl) {
    return ProcessGroup(std::move(impl));
  }

  const pid_t process = getpid();
  int64_t rank = 0;
  int64_t size = 1;
  int64_t local_rank = 0;
  int64_t local_size = 1;
  c10::Device device{c10::kCPU};
  std::string backend = "none";
  /// Whether the group was constructed as `ProcessGroup()`, not from ranks or
  /// another group.
  bool by_default = false;
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// A wait that exceeds this time is reported.
  std::chrono::milliseconds wait_notice = std::chrono::seconds(10);
  /// The address of this host that the other ranks can reach; empty for a group
  /// from `from_c10d`, which cannot be connected again.
  std::string address;
  /// The requested network interface; if empty, the interface of `address`.
  std::string interface;
  /// The host identity of each rank, equal for ranks of one host; empty for a
  /// group of one.
  std::vector<std::string> hosts;
  c10::intrusive_ptr<c10d::Store> store;
  /// Whether the store ends with this process.
  bool hosts_store = false;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  /// The MPI communicator of the ranks if the backend is mpi. Duplicates of the
  /// group share this communicator, since each backend duplicates it.
  std::shared_ptr<backends::mpi::Communicator> communicator;
  /// The number of groups made from this group; the same on all ranks.
  int64_t children = 0;
  /// Whether the group was split: its parts may then average separately.
  bool is_split = false;
  /// The number of Reducers on this group; the same on all ranks.
  int64_t reducers = 0;
  /// The number of comparisons that do not wait for ranks, by subject.
  std::map<std::string, int64_t> comparisons;
  bool shut_down = false;
  /// Whether the ranks' parameters and gradients are compared.
  bool checks_replicas = true;
  /// The number of later checkpoints that will compare replicas. One checkpoint
  /// does not suffice, since it may be written before training.
  int replica_checks = 3;
  /// Whether `ElasticRun::sync` restored a state, after which the job may
  /// repeat steps that it has saved.
  bool repeats_steps = false;
  /// Whether a `Join` exists on this group; duplicates share this flag.
  std::shared_ptr<bool> joined = std::make_shared<bool>(false);
  /// The store of the ranks' failures; null without other ranks or without a
  /// key-value store. Duplicates share this store.
  std::shared_ptr<FailureStore> failure_store;
  /// The name of this group in the failure store.
  std::string scope;
  /// Autograd's sequence number when `init_process_group` formed the group; a
  /// thread with a larger number has trained. The largest possible number in
  /// other groups, and in this group after it has reduced or gathered values,
  /// or another group was made from it.
  std::atomic<uint64_t> unused_since{std::numeric_limits<uint64_t>::max()};
  /// The number of averages over any group of this process, and the number when
  /// `init_process_group` formed this group.
  inline static std::atomic<uint64_t> averages{0};
  uint64_t averages_before = 0;
  /// Whether numbers have been summed over the group, which does not indicate
  /// training, and whether a sampler draws samples for the group in random
  /// order, which does.
  std::atomic<bool> has_metrics{false};
  std::atomic<bool> shuffles{false};
  /// The number of started collectives; equal on all ranks at the same point of
  /// the program.
  std::atomic<int64_t> launched{0};
  /// The order of the calls that DDP_DEBUG records; null if it is off.
  std::shared_ptr<debug::CallOrder> calls;
  /// The reason why the group is broken.
  FirstError first_error;
  /// Whether a wait ended before its collective did.
  std::atomic<bool> abandoned{false};
  /// Held while a collective is launched, so that an abort does not free
  /// objects that the launch uses.
  std::recursive_mutex launching;
  /// Checks this group and all groups made from it.
  std::shared_ptr<WatchdogThread> watchdog_thread;
  /// Set if collectives run on a GPU. Must be the last member, since the
  /// watchdog reads the others.
  std::unique_ptr<Watchdog> watchdog;
};

/// The number of groups that this process has formed, except those made from
/// another group.
int64_t groups_formed();

/// Warns if `group` is `ProcessGroup()`, a group of one, although this process
/// is one of several. `user` names the object with that group, and
/// `consequence` is added to the text.
void check_not_forgotten(
    const ProcessGroup& group,
    const char* user,
    const char* consequence);

/// Returns the scope of the group with this number, "" for 0, "/group_1" for 1,
/// and counts the group. The number is the largest `groups_formed` of its
/// ranks.
std::string scope_of_group(int64_t number, int64_t size);

/// Starts to report this process's progress to the launcher and, unless
/// `options` forbid it, the reason why the process ends.
void report_to_launcher(const ProcessGroupOptions& options);

/// Forms the group of the ranks that `environment` names, or a group of one.
/// `options` must be complete; `communicator` connects the ranks over MPI if
/// the backend is mpi. Collective.
ProcessGroup form_group(
    const ProcessGroupOptions& options,
    LaunchEnvironment environment,
    const std::shared_ptr<backends::mpi::Communicator>& communicator);

/// Broadcasts rank 0's address over `communicator` unless the ranks already
/// have this address. Collective.
void rendezvous_over_mpi(
    LaunchEnvironment& environment,
    backends::mpi::Communicator& communicator,
    std::chrono::milliseconds timeout);

/// Connects the ranks of `impl`, whose other members must be set, and returns
/// when all ranks are connected. Collective.
void connect(ProcessGroupImpl& impl);

/// Ends the connections of `impl`. If a collective may never end, the backend,
/// which would wait for it, is destroyed on a separate thread, and this
/// function returns immediately. NCCL gets up to 10 s to complete running
/// collectives, or to abort these collectives if the group is broken or during
/// an exception.
void disconnect(ProcessGroupImpl& impl) noexcept;

/// If the group has a watchdog, waits for this process's GPUs. Throws
/// `PeerError` if the group, or a group made from it, was aborted: values that
/// the GPUs computed since then are invalid.
void check_gpu_results(const ProcessGroup& group);

/// Returns the tensors of all ranks, which must have the same shape. Call this
/// within `guarded`. Collective.
std::vector<at::Tensor> gather_equal(
    ProcessGroupImpl& group,
    const at::Tensor& tensor);

/// Returns when every rank has called this function; `operation` is for the
/// message of an error. Collective.
void wait_for_all_ranks(ProcessGroupImpl& group, const char* operation);

} // namespace detail
} // namespace ddp
