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

  /// That ranks may learn of each other's values over it.
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
  /// Whether it was constructed by no other group or meeting of ranks.
  bool by_default = false;
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// A wait of this long is reported.
  std::chrono::milliseconds wait_notice = std::chrono::seconds(10);
  /// The address of this host that the other ranks can reach; empty for a
  /// group that was handed to us, which we cannot connect a second time.
  std::string address;
  /// The network interface that was asked for; empty: that of `address`.
  std::string interface;
  /// Equal for the ranks of one host, by rank; empty for a group of one.
  std::vector<std::string> hosts;
  c10::intrusive_ptr<c10d::Store> store;
  /// Whether the store ends with this process.
  bool hosts_store = false;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  /// The ranks as MPI knows them, where the backend is mpi; duplicates share
  /// it, since each backend duplicates it.
  std::shared_ptr<backends::mpi::Communicator> communicator;
  /// Numbers the groups made from this one, alike on all ranks.
  int64_t children = 0;
  /// Whether it has parts, which may average by themselves.
  bool is_split = false;
  /// Numbers the Reducers on this group, likewise.
  int64_t reducers = 0;
  /// Numbers the comparisons that no one waits for, by what is compared.
  std::map<std::string, int64_t> comparisons;
  bool shut_down = false;
  /// Whether the ranks' parameters and gradients are compared.
  bool checks_replicas = true;
  /// How many checkpoints still do: one may be written before the training.
  int replica_checks = 3;
  /// Whether a `Join` lives on this group; duplicates share it.
  std::shared_ptr<bool> joined = std::make_shared<bool>(false);
  /// Where ranks that fail say so; null if there is no one to tell or no store
  /// to do it by. Duplicates share it.
  std::shared_ptr<FailureStore> failure_store;
  /// This group's name there.
  std::string scope;
  /// Until something is reduced or gathered over the group, or another made of
  /// it: autograd's sequence number when `init_process_group` formed it. Beyond
  /// that, this thread has trained. Largest in other groups and afterwards.
  std::atomic<uint64_t> unused_since{std::numeric_limits<uint64_t>::max()};
  /// Whether numbers have been summed over it, which says nothing of training;
  /// whether a sampler draws samples for it in random order, which does.
  std::atomic<bool> has_metrics{false};
  std::atomic<bool> shuffles{false};
  /// Collectives started so far, alike on all ranks that have come as far.
  std::atomic<int64_t> launched{0};
  /// Why it is of no more use.
  FirstError first_error;
  /// Whether a collective was left without waiting for its end.
  std::atomic<bool> abandoned{false};
  /// Held while a collective is launched, so that no abort frees what it uses.
  std::recursive_mutex launching;
  /// Looks at this group and at all that are made of it.
  std::shared_ptr<WatchdogThread> watchdog_thread;
  /// Where collectives run on a GPU. Last: it reads the others.
  std::unique_ptr<Watchdog> watchdog;
};

/// How many groups this process has formed that come of no other one.
int64_t groups_formed();

/// Warns where `group` is `ProcessGroup()`, a group of one, although this
/// process is one of several: `user` was given it, and `consequence`.
void check_not_forgotten(
    const ProcessGroup& group,
    const char* user,
    const char* consequence);

/// The scope of the group with this number, and counts it: "" for 0,
/// "/group_1" for 1. The number is the largest `groups_formed` of its ranks.
std::string scope_of_group(int64_t number, int64_t size);

/// From now on the launcher hears of this process's progress and, unless
/// `options` forbid it, of the reason of its end.
void report_to_launcher(const ProcessGroupOptions& options);

/// Forms the group of the ranks that `environment` names, or a group of one.
/// `options` must be complete; `communicator` reaches the ranks over MPI if the
/// backend is mpi. Collective.
ProcessGroup form_group(
    const ProcessGroupOptions& options,
    LaunchEnvironment environment,
    const std::shared_ptr<backends::mpi::Communicator>& communicator);

/// Rank 0's address over `communicator`, where the ranks do not know it yet.
/// Collective.
void meet_over_mpi(
    LaunchEnvironment& environment,
    backends::mpi::Communicator& communicator,
    std::chrono::milliseconds timeout);

/// Connects the ranks of `impl`, whose other members are filled in, and returns
/// when all of them are connected. Collective.
void connect(ProcessGroupImpl& impl);

/// Ends the connections of `impl`. If a collective may be under way for good,
/// the backend, which would wait for it, ends on a thread of its own and this
/// takes no time; NCCL completes what is under way, or aborts it where the
/// group is broken or an exception is on its way, and gets up to 10 s.
void disconnect(ProcessGroupImpl& impl) noexcept;

/// The tensors of all ranks, which are of one shape. To be called within
/// `guarded`. Collective.
std::vector<at::Tensor> gather_equal(
    ProcessGroupImpl& group,
    const at::Tensor& tensor);

/// Returns when every rank has called it; `operation` is for the message of an
/// error. Collective.
void wait_for_all_ranks(ProcessGroupImpl& group, const char* operation);

} // namespace detail
} // namespace ddp
