#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/bucket_assignment.h>
#include <ddp/process_group.h>
#include <ddp/reducer_options.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <type_traits>
#include <vector>

namespace torch::nn {
class Module;
}

namespace ddp {

/// Averages gradients over ranks during `backward()`.
///
/// Attach one to a module or to a list of parameters and leave the training
/// loop as it is: when `backward()` returns, each parameter's `grad()` is the
/// mean over ranks of what the ranks computed. Gradients are collected in
/// buckets, and a bucket's all-reduce runs while backward goes on. Every rank
/// must run the same number of backward passes, and each has to reach at least
/// one parameter. Beyond that ranks may use different parameters: who has no
/// gradient contributes zero, and where no rank has one there is none. A
/// gradient that was there before is part of what is averaged.
///
/// Attach after the module was moved to its device and dtype: a parameter that
/// is converted later is off the Reducer, as is one that is unfrozen later.
/// Buffers (the statistics of batch-norm) stay each rank's own: give every rank
/// rank 0's before evaluating or saving by `broadcast_buffers`, or in each
/// forward by `DistributedDataParallel`.
///
/// After a backward the gradients are slices of the buckets. Optimizers,
/// clipping and `zero_grad()` work on them as on any gradient; one that has to
/// outlive the next backward must be cloned.
///
/// Values equal those of Python's DistributedDataParallel with its default
/// options bit for bit (but for the sign of zeros) over gloo: each rank
/// multiplies by 1/size, the sum follows, and the buckets are laid out as there
/// (in the first backward one bucket per dtype, then rebuilt once in rank 0's
/// order of gradients). Source:
/// pytorch/torch/csrc/distributed/c10d/reducer.cpp.
///
/// With a group of one nothing happens. Not thread-safe; destroy it on all
/// ranks at the same place or not at all.
class Reducer {
 public:
  /// Manages the parameters of `module` that require gradients. Unless
  /// `options.init_sync()` is off, checks that all ranks have the same model
  /// and gives them rank 0's parameters and buffers. Collective. Throws
  /// `c10::ValueError` where no parameter requires a gradient or where ranks
  /// differ, on all ranks and by name.
  Reducer(
      const std::shared_ptr<torch::nn::Module>& module,
      const ProcessGroup& group,
      const ReducerOptions& options = {});

  /// The same for a module holder, such as `torch::nn::Linear`.
  template <
      typename Holder,
      typename =
          std::enable_if_t<torch::detail::is_module_holder<Holder>::value>>
  Reducer(
      const Holder& module,
      const ProcessGroup& group,
      const ReducerOptions& options = {})
      : Reducer(
            std::shared_ptr<torch::nn::Module>(module.ptr()),
            group,
            options) {}

  /// The same for leaf tensors; messages call them by their index.
  Reducer(
      const std::vector<at::Tensor>& parameters,
      const ProcessGroup& group,
      const ReducerOptions& options = {});

  Reducer(Reducer&&) noexcept;
  Reducer& operator=(Reducer&&) noexcept;

  /// Detaches from the parameters, which keep their gradients. Not collective.
  ~Reducer();

  struct Impl;

  /// While one lives, backward only accumulates, without communication.
  class NoSyncGuard {
   public:
    explicit NoSyncGuard(std::shared_ptr<Impl> impl);
    NoSyncGuard(NoSyncGuard&&) noexcept = default;
    NoSyncGuard& operator=(NoSyncGuard&&) = delete;
    ~NoSyncGuard();

   private:
    std::shared_ptr<Impl> impl_;
  };

  /// Accumulates gradients locally until the guard is gone; the next backward
  /// after that reduces the sum. Guards nest. All ranks must agree on it.
  [[nodiscard]] NoSyncGuard no_sync();

  /// Whether a backward now would communicate, that is, no guard lives.
  bool synchronizes() const;

  /// The parameters of each bucket, by index, in the order of reduction.
  std::vector<BucketIndices> buckets() const;

 private:
  std::shared_ptr<Impl> impl_;
};

} // namespace ddp
