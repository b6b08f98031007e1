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

/// The processes that train together, and this process's place among them.
///
/// A cheap value: copies share one group. A default-constructed group has one
/// member, and every collective on it is a no-op, so a program needs no special
/// case for running alone. Except if said otherwise, each collective must be
/// called by every rank in the same order with tensors of the same shape and
/// dtype. Tensors may live on the CPU or, if the backend is nccl, on this
/// rank's GPU.
///
/// A collective throws `c10::Error` naming this rank, the operation and why:
/// within seconds if a peer is gone or has failed, with its message if it left
/// one, and at the timeout, with the ranks that did not come; on a GPU the
/// group's next use does. Then it and its duplicates are of no more use.
class DDP_API ProcessGroup {
 public:
  /// A group of one on the CPU.
  ProcessGroup();

  /// Wraps a group that the program has already. Its host layout is found by
  /// comparing the ranks' hosts. Collective.
  static ProcessGroup from_c10d(
      const c10::intrusive_ptr<c10d::ProcessGroup>& group,
      c10::Device device = c10::Device(c10::kCPU));

  /// Forms a group of the ranks of `comm`, an `MPI_Comm` of the program's,
  /// whose messages carry the addresses. The backend is "mpi" unless options or
  /// DDP_BACKEND name another. MPI must have been initialised. `comm` is
  /// duplicated and stays the program's to free. Collective over `comm`. Throws
  /// `c10::ValueError` if `comm` is of another MPI than ddp was built with,
  /// `c10::Error` if that was none, and as `init_process_group` does.
  template <typename Communicator>
  static ProcessGroup from_mpi(
      Communicator comm,
      const ProcessGroupOptions& options = {}) {
    return from_mpi_handle(&comm, sizeof(comm), options);
  }

  int64_t rank() const;
  int64_t size() const;

  /// This process's place among the group's processes on the same host.
  int64_t local_rank() const;
  int64_t local_size() const;

  /// Where this rank's tensors live.
  c10::Device device() const;
  /// As `ProcessGroupOptions::backend` or, for a group of one, "none".
  const std::string& backend() const;

  /// The bound on every wait of this group.
  std::chrono::milliseconds timeout() const;

  /// The key-value store the ranks met at, under a prefix of this group's own,
  /// and the group as LibTorch knows it; null for a group of one. To use them
  /// include torch/csrc/distributed/c10d/Store.hpp and ProcessGroup.hpp.
  c10::intrusive_ptr<c10d::Store> store() const;
  c10::intrusive_ptr<c10d::ProcessGroup> c10d() const;

  /// Replaces `tensor` (any shape) on every rank by the reduction over ranks.
  /// Collective.
  void all_reduce(at::Tensor tensor, ReduceOp op = ReduceOp::kSum) const;

  /// The same without waiting; `tensor` must not be touched until `wait()`.
  /// `op` may not be `kMean`.
  Work all_reduce_async(at::Tensor tensor, ReduceOp op = ReduceOp::kSum) const;

  /// Returns the tensors of all ranks, by rank. They must agree in dtype and in
  /// all sizes but the first, which may differ (also be 0). Collective.
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) const;

  /// Returns the strings of all ranks, by rank; lengths may differ. Collective.
  std::vector<std::string> all_gather(const std::string& text) const;

  /// Replaces `tensor` by `root`'s. Collective.
  void broadcast(at::Tensor tensor, int64_t root = 0) const;

  /// The same without waiting; `tensor` must not be touched until `wait()`.
  Work broadcast_async(at::Tensor tensor, int64_t root = 0) const;

  /// Returns `root`'s string; what the others pass is ignored. Collective.
  std::string broadcast(const std::string& text, int64_t root = 0) const;

  /// Returns when every rank has called it. Collective.
  void barrier() const;

  /// A group of the same ranks with a communicator of its own. A group from
  /// `from_c10d` cannot be connected anew and returns itself. Collective.
  ProcessGroup duplicate() const;

  /// The group of the ranks that pass the same `color` (from 0 on), ordered by
  /// `key` and then by rank, with this group's backend. A rank that passes -1,
  /// or is alone with its color, gets a group of one. The first group's rank 0
  /// serves the store of all parts. A group from `from_c10d` can be split if it
  /// has a store, gloo or nccl, and one host. Collective over this group.
  ProcessGroup split(int64_t color, int64_t key = 0) const;

  /// Waits for every rank and closes the connections; the group is of no use
  /// afterwards, in any copy, though duplicates and Reducers continue.
  /// Optional: ranks may also just leave `main`, in any order. Collective.
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

/// Forms the group of the processes that ddprun, torchrun, mpirun, srun or RANK
/// and WORLD_SIZE name; without them a group of one. Call it once per process.
/// Collective; at the timeout every rank that came throws `c10::Error` with the
/// missing ranks. Throws `c10::ValueError` if options or environment contradict
/// each other or cannot be read.
[[nodiscard]] DDP_API ProcessGroup
init_process_group(const ProcessGroupOptions& options = {});

} // namespace ddp
