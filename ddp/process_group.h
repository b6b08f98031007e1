#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>
#include <ddp/process_group_options.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace c10d {
class ProcessGroup;
class Store;
} // namespace c10d

namespace ddp {

/// The operation of an all-reduce. `kMean` is the sum divided by the group's
/// size, for floating-point and complex tensors.
enum class ReduceOp { kSum, kMean, kMin, kMax };

class Work;

/// The processes that train together, and this process's place among them.
///
/// A cheap value: copies share one group. A default-constructed group has one
/// member, and every collective on it is a no-op, so a program needs no special
/// case for running alone. Except where said otherwise, each collective must be
/// called by every rank in the same order with tensors of the same shape and
/// dtype. Tensors may live on the CPU or, where the backend is nccl, on this
/// rank's GPU.
///
/// A collective throws `c10::Error` naming this rank, the operation and why:
/// within seconds where a peer is gone or has failed, with its message if it
/// left one (waits for a GPU do not look), and at the timeout, with the ranks
/// that did not come. Then this group and its duplicates are of no more use.
class ProcessGroup {
 public:
  /// A group of one on the CPU.
  ProcessGroup();

  /// Wraps a group that the program has already. Its host layout is found by
  /// comparing the ranks' hosts. Collective.
  static ProcessGroup from_c10d(
      const c10::intrusive_ptr<c10d::ProcessGroup>& group,
      c10::Device device = c10::Device(c10::kCPU));

  int64_t rank() const;
  int64_t size() const;

  /// This process's place among the group's processes on the same host.
  int64_t local_rank() const;
  int64_t local_size() const;

  /// Where this rank's tensors live.
  c10::Device device() const;

  /// "gloo", "nccl" or, for a group of one, "none".
  const std::string& backend() const;

  /// The bound on every wait of this group.
  std::chrono::milliseconds timeout() const;

  /// The key-value store the ranks met at, under a prefix of this group's own;
  /// null for a group of one. To use it include
  /// <torch/csrc/distributed/c10d/Store.hpp>.
  c10::intrusive_ptr<c10d::Store> store() const;

  /// The group as LibTorch knows it; null for a group of one. To use it include
  /// <torch/csrc/distributed/c10d/ProcessGroup.hpp>.
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

  /// A group of the same ranks whose collectives cannot mix with this one's: a
  /// communicator of its own. A group from `from_c10d` cannot be connected anew
  /// and returns itself. Collective.
  ProcessGroup duplicate() const;

  /// Waits for every rank and closes the connections; the group is of no use
  /// afterwards, in any copy, though duplicates and Reducers go on. Optional:
  /// ranks may also just leave `main`, in any order. Collective.
  void shutdown();

  struct Impl;
  explicit ProcessGroup(std::shared_ptr<Impl> impl);

 private:
  std::shared_ptr<Impl> impl_;
};

/// A collective that is under way.
class Work {
 public:
  /// One that is complete already.
  Work();
  Work(Work&&) noexcept;
  Work& operator=(Work&&) noexcept;
  ~Work();

  /// Blocks until the tensors may be used: on CPU until they hold the result,
  /// on CUDA it lets the current stream wait. Throws as collectives do.
  void wait();

 private:
  friend class ProcessGroup;
  struct State;
  explicit Work(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

/// Forms the group of the processes that a launcher started: ddprun, torchrun,
/// or anything that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Without
/// a launcher it returns a group of one. Call it once per process;
/// `duplicate()` makes further groups. Collective; blocks until all ranks have
/// come or the timeout has passed, then every rank that did come throws
/// `c10::Error` with the ranks that are missing. Throws `c10::ValueError` where
/// options or environment contradict each other or cannot be read.
ProcessGroup init_process_group(const ProcessGroupOptions& options = {});

} // namespace ddp
