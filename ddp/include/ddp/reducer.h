#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ddp/internal/export.h>
#include <ddp/internal/reducer_target.h>
#include <ddp/join.h>
#include <ddp/process_group.h>
#include <ddp/reducer_options.h>
#include <ddp/statistics.h>

#include <memory>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace ddp {

struct ReducerImpl;

/// Averages gradients across ranks during `backward()`.
///
/// Attach a Reducer to a module or a list of parameters; the training loop does
/// not change. After `backward()`, each `grad()` is the mean of the ranks'
/// gradients. Each backward pass outside `no_sync` reduces gradients, even over
/// a retained graph or another output. All ranks must run the same passes.
///
/// Ranks may use different parameters. If any rank has a new gradient since the
/// last reduction, ranks without a new gradient use their earlier gradient or
/// zero. If no rank has a new gradient, the gradient does not change. After a
/// backward pass that reaches no parameter, call `finish_backward()`.
///
/// Attach a Reducer after the module was moved to its device and dtype: if the
/// module is converted later, the next pass throws. Parameters may be frozen
/// and unfrozen between passes, in the same way on all ranks; after a lasting
/// change, a new Reducer sends less and overlaps more. After a pass, gradients
/// are slices of the buckets. Optimizers, clipping and `zero_grad()` work as
/// usual. Clone a gradient to use it in or after the next pass, and do not
/// exchange parameters' gradients.
///
/// Over gloo, values equal those of Python's DistributedDataParallel with the
/// same options bit for bit. If ranks differ, a peer fails or a gradient cannot
/// be reduced, the backward pass throws a `c10::Error` with the reason. The
/// Reducer is then unusable; all ranks may construct a new Reducer.
///
/// In a group of one without a backend, a Reducer only makes the usual checks.
/// Not thread-safe. Destroy a Reducer on all ranks or on none.
class DDP_API Reducer {
 public:
  /// Reduces the gradients of `target`: a module (a shared pointer, a holder,
  /// or a reference to a module that outlives the Reducer), a TorchScript
  /// module, or leaf tensors that require gradients (a vector, or as from
  /// `named_parameters()`). If `options.init_sync()` is on, checks that models
  /// are equal, and broadcasts rank 0's parameters and (with
  /// `broadcast_buffers`) buffers. Collective. Throws `c10::ValueError` with
  /// names if no parameter requires a gradient, if one has another Reducer, or
  /// (on all ranks) if ranks differ.
  [[nodiscard]] Reducer(
      const detail::ReducerTarget& target,
      const ProcessGroup& group,
      const ReducerOptions& options = {});

  Reducer(Reducer&&) noexcept; ///< Keeps hooks and parameters attached.
  Reducer& operator=(Reducer&&) noexcept; ///< Detaches `*this` first.

  /// Detaches from the parameters, which keep their gradients. Not collective.
  ~Reducer();

  using NoSyncGuard = std::shared_ptr<void>; ///< See `no_sync`.
  /// While a guard exists, backward passes accumulate gradients without
  /// communication. The next pass after the guard reduces the sum. Guards can
  /// be nested. All ranks must use guards in the same passes.
  [[nodiscard]] NoSyncGuard no_sync();

  /// Whether a backward pass would communicate: no `no_sync` guard exists.
  bool synchronizes() const;

  /// Joins this step's reduction if this rank ran no backward pass, or the pass
  /// reached no parameter. Call this method after the pass in every step on all
  /// ranks, or never. If steps have several passes, as with two Reducers, call
  /// it after each pass that reaches this Reducer's parameters on any rank; in
  /// other passes, freeze them or use `no_sync`. With the wrapper and a module
  /// that has buffers, also run `forward` on all ranks, or disable
  /// `broadcast_buffers`. Collective, except under `no_sync`.
  void finish_backward();

  /// Lets ranks run different numbers of steps while the `Join` exists. A
  /// `ZeroRedundancyOptimizer` can share the `Join` through `joinable()`.
  /// Throws `c10::ValueError` if `skip_all_reduce_unused_params` is set.
  [[nodiscard]] Join join(const JoinOptions& options = {});
  Joinable& joinable(); ///< The object for a shared `Join`.

  /// Makes each later backward pass that reduces gradients also step
  /// `optimizer`, with bit-identical results. A bucket's parameters are stepped
  /// once the bucket is reduced, while other buckets are in flight. Do not call
  /// `optimizer.step()`. The optimizer must outlive this Reducer and step each
  /// parameter separately; throws `c10::ValueError` for others, such as
  /// `LBFGS`, for one with parameters of another Reducer, and for a second one
  /// (use parameter groups). Rules out clipping by the norm of all gradients,
  /// and a second pass over the same graph. If a pass throws, ranks may have
  /// stepped different parameters: load a saved state before going on. Works in
  /// a group of one. Collective. Source:
  /// torch/distributed/optim/apply_optimizer_in_backward.py.
  void step_in_backward(torch::optim::Optimizer& optimizer);

  /// `torch::nn::utils::clip_grad_norm_` for all parameters, with one norm and
  /// one scaling per bucket; call this method after the pass. Returns the norm
  /// before clipping, a double tensor on the gradients' device, without waiting
  /// for a GPU. The norm's relative error is at most 1e-5, unless gradients to
  /// the power of `norm_type` (> 0 or infinity) leave the range of float
  /// (double for doubles). As in Python, the norm is then infinite (gradients
  /// become zero) or too small. With `error_if_nonfinite`, waits and throws
  /// `c10::Error` if the norm is infinite or NaN. Not collective.
  at::Tensor clip_grad_norm(
      double max_norm,
      double norm_type = 2.,
      bool error_if_nonfinite = false);

  /// Each bucket's indices into `parameters()`, in the order of reduction.
  std::vector<BucketIndices> buckets() const;

  /// All parameters, including frozen ones, in registration order.
  std::vector<at::Tensor> parameters() const;

  /// The bucket layout, on which the bits of sums depend, and the communication
  /// hook's state. A run that resumes with this state (`TrainingState::add`)
  /// sums gradients like an uninterrupted run. Equal on all ranks. Call this
  /// and the methods below between backward passes. Not collective.
  c10::IValue state_dict() const;

  /// Immediately lays out the buckets as in `state`, which all ranks must load.
  /// Bucket sizes, and whether buckets are rebuilt, follow this Reducer's
  /// options. Throws `c10::Error` with names if `state` is for different
  /// parameters; the Reducer is then unchanged. Not collective.
  void load_state_dict(const c10::IValue& state);

  /// `CommHook::rank_state_dict()`, which `TrainingState::add` saves per rank.
  c10::IValue rank_state_dict() const;
  void load_rank_state_dict(const c10::IValue& state); ///< Loads such a value.

  /// The times of the last backward pass's buckets; empty without `record`.
  Timeline timeline() const;

  /// This rank's counts and times; `summary` shows them as a table.
  Statistics statistics() const;

 private:
  friend struct ReducerImpl;

  explicit Reducer(std::shared_ptr<ReducerImpl> impl);

  ReducerImpl& impl() const;
  void end();

  std::shared_ptr<ReducerImpl> impl_;
};

} // namespace ddp
