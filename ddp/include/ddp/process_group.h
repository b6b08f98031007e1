#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>
#include <ddp/internal/export.h>
#include <ddp/process_group_options.h>
#include <ddp/work.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace c10d {
class ProcessGroup;
class Store;
} // namespace c10d

namespace ddp {

namespace detail {
struct ProcessGroupImpl;
} // namespace detail

/// The processes that train together, and this process's rank among them.
///
/// Cheap to copy; copies share one group. A default-constructed group has one
/// member and its collectives are no-ops, so a program needs no special case
/// for a single process. Unless noted otherwise, all ranks must call the same
/// collectives in the same order, with equal shapes and dtypes. Tensors may be
/// on the CPU or, with the backend nccl, on this rank's GPU. Collectives are
/// not differentiable.
///
/// A collective throws `c10::Error` with this rank, the operation and the
/// reason: within seconds if a peer failed or ended, with the peer's message if
/// known; otherwise at the timeout, with the missing ranks. On a GPU, the next
/// use throws. The group and its duplicates are then unusable.
class DDP_API ProcessGroup {
 public:
  /// A group of one on the CPU.
  ProcessGroup();

  ProcessGroup(const ProcessGroup&) =
      default; ///< Also a move: both are usable.
  ProcessGroup& operator=(const ProcessGroup&) = default; ///< Also a move.

  /// Wraps an existing group of the program. A `device` without an index is the
  /// current one. Compares the ranks' hosts to find the host layout. Duplicates
  /// of the group are the group itself, so a Reducer, its wrapper and
  /// `convert_sync_batchnorm` use one communicator: Reducers must not share a
  /// backward pass, and an error in a pass ends the group. Collective.
  static ProcessGroup from_c10d(
      const c10::intrusive_ptr<c10d::ProcessGroup>& group,
      c10::Device device = c10::Device(c10::kCPU));

  /// Forms a group of the ranks of the program's `MPI_Comm` `comm`, over which
  /// these ranks exchange addresses, unless options name `master_addr` and
  /// `master_port`. The backend is "mpi" unless options or DDP_BACKEND name
  /// another backend. MPI must be initialized. `comm` is duplicated; the
  /// program still frees it. Ranks of different groups on a host choose the
  /// same GPUs, unless the groups come from the `split` of one. Collective over
  /// `comm`. Throws `c10::ValueError` if ddp was built with a different MPI,
  /// `c10::Error` if built without MPI, and as `init_process_group` does.
  template <typename Communicator>
  static ProcessGroup from_mpi(
      Communicator comm,
      const ProcessGroupOptions& options = {}) {
    return from_mpi_handle(&comm, sizeof(comm), options);
  }

  int64_t rank() const; ///< This process's rank, from 0 to `size() - 1`.
  int64_t size() const; ///< The number of ranks.

  /// This process's rank among the group's processes on the same host.
  int64_t local_rank() const;
  int64_t local_size() const; ///< The number of these processes.

  c10::Device device() const; ///< The device of this rank's tensors.
  /// The backend (see `ProcessGroupOptions`); "none" for a group of one.
  const std::string& backend() const;

  std::chrono::milliseconds timeout() const; ///< The limit of each wait.

  /// The key-value store of the rendezvous, under a prefix of this group; null
  /// for a group of one. A request that waits for a key blocks the requests of
  /// Reducers: another thread must wait on `store()->clone()`. To use `store`
  /// and `c10d`, include Store.hpp and ProcessGroup.hpp from
  /// torch/csrc/distributed/c10d.
  c10::intrusive_ptr<c10d::Store> store() const;
  c10::intrusive_ptr<c10d::ProcessGroup> c10d() const; ///< LibTorch's group.

  /// Replaces `tensor` (any shape) on every rank with the reduction across
  /// ranks. Collective. Throws `c10::ValueError` for `kMean` of integers.
  void all_reduce(at::Tensor tensor, ReduceOp op = ReduceOp::kSum) const;

  /// Like `all_reduce`, without waiting; do not use `tensor` before `wait()`.
  /// Throws `c10::ValueError` if `tensor` is not contiguous, or for `kMean`.
  Work all_reduce_async(at::Tensor tensor, ReduceOp op = ReduceOp::kSum) const;

  /// Returns the tensors of all ranks, by rank. Dtypes and all sizes but the
  /// first must agree; the first size may differ or be 0. Collective.
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) const;

  /// Returns the strings of all ranks, by rank; lengths may differ. Collective.
  std::vector<std::string> all_gather(const std::string& text) const;

  /// Replaces `tensor` with `root`'s. Collective. Throws `c10::ValueError` if
  /// `root` is not a rank.
  void broadcast(at::Tensor tensor, int64_t root = 0) const;

  /// Like `broadcast`, without waiting; do not use `tensor` before `wait()`.
  /// Throws `c10::ValueError` if `tensor` is not contiguous.
  Work broadcast_async(at::Tensor tensor, int64_t root = 0) const;

  /// Returns `root`'s string; other ranks' strings are ignored. Collective.
  std::string broadcast(const std::string& text, int64_t root = 0) const;

  /// Returns when every rank has called `barrier`. Collective.
  void barrier() const;

  /// A group of the same ranks with a separate communicator. For a group from
  /// `from_c10d`, which cannot create another communicator, returns the group
  /// itself. Collective.
  ProcessGroup duplicate() const;

  /// The group of the ranks that pass the same `color` (>= 0), ordered by `key`
  /// and then by rank, with this group's backend. A rank that passes -1, or is
  /// alone with its color, gets a group of one. Rank 0 of the original group
  /// serves the store of all parts and must outlive them: end with a
  /// `barrier()` of the original group. A group from `from_c10d` can be split
  /// if it has a store, gloo or nccl, and one host. Collective over this group.
  ProcessGroup split(int64_t color, int64_t key = 0) const;

  /// Waits for every rank and closes the connections. No copy of the group can
  /// be used afterward, but duplicates and Reducers can. Optional: ranks may
  /// also leave `main` without a shutdown, in any order. Collective.
  void shutdown();

 private:
  friend struct detail::ProcessGroupImpl;

  explicit ProcessGroup(std::shared_ptr<detail::ProcessGroupImpl> impl);

  static ProcessGroup from_mpi_handle(
      const void* handle,
      size_t size,
      const ProcessGroupOptions& options);

  std::shared_ptr<detail::ProcessGroupImpl> impl_;
};

/// Forms the group of the processes that ddprun, torchrun, mpirun or srun
/// started, or that RANK and WORLD_SIZE describe; otherwise, a group of one.
/// Call this function once per process. Collective: at the timeout, ranks that
/// arrived throw `c10::Error` with the missing ranks. Throws `c10::ValueError`
/// if options and environment are invalid or contradict each other.
[[nodiscard]] DDP_API ProcessGroup
init_process_group(const ProcessGroupOptions& options = {});

} // namespace ddp
