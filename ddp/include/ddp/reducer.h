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
/// computed gradients. Each backward pass outside `no_sync` reduces, even over
/// a retained graph or a different output; ranks must run the same passes.
///
/// Ranks may use different parameters. If any rank has a new gradient since the
/// last reduction, ranks without one use their earlier gradient, or zero. If no
/// rank has one, the gradient does not change. A backward must reach at least
/// one parameter, or `finish_backward()` must follow it.
///
/// Attach it after the module was moved to its device and dtype: if the module
/// is converted later, the next backward throws. Parameters may be frozen and
/// unfrozen between backward passes, equally on all ranks. After a backward the
/// gradients are slices of the buckets. Optimizers, clipping and `zero_grad()`
/// work as usual. Clone a gradient that must outlive the next backward.
///
/// Over gloo, values equal those of Python's DistributedDataParallel with the
/// same options bit for bit. If ranks differ, a peer fails or a gradient cannot
/// be reduced, backward throws a `c10::Error` with the reason. The Reducer
/// cannot be used again; all ranks may construct a new one.
///
/// A group of one without a backend reduces nothing, but makes the same checks
/// as a larger group. Not thread-safe; destroy it on all ranks or on none.
class DDP_API Reducer {
 public:
  /// Reduces the gradients of `target`: a module (a shared pointer, a module
  /// holder or, if it outlives the Reducer, a reference), a TorchScript module,
  /// or leaf tensors that require gradients, in a vector or, with names, as
  /// from `named_parameters()`. Unless `options.init_sync()` is off, checks
  /// that all ranks have the same model and gives them rank 0's parameters and
  /// buffers. Collective. Throws `c10::ValueError`, with names, if no parameter
  /// requires a gradient, if one belongs to another Reducer, or (on all ranks)
  /// if ranks differ.
  [[nodiscard]] Reducer(
      const detail::ReducerTarget& target,
      const ProcessGroup& group,
      const ReducerOptions& options = {});

  Reducer(Reducer&&) noexcept; ///< Moves; hooks and parameters stay attached.
  Reducer& operator=(Reducer&&) noexcept; ///< Detaches first.

  /// Detaches from the parameters, which keep their gradients. Not collective.
  ~Reducer();

  using NoSyncGuard = std::shared_ptr<void>; ///< See `no_sync`.
  /// While a guard lives, backward accumulates without communication; the next
  /// backward after it reduces the sum. Guards nest. All ranks must agree.
  [[nodiscard]] NoSyncGuard no_sync();

  /// Whether a backward would communicate: no guard of `no_sync` lives.
  bool synchronizes() const;

  /// Takes part in this step's reduction if this rank ran no backward or its
  /// backward reached none of its parameters. Call it after backward in every
  /// step, on all ranks, or never. Collective, except under `no_sync`.
  void finish_backward();

  /// Lets ranks have different numbers of steps while the `Join` lives. A
  /// `ZeroRedundancyOptimizer` can share it by `joinable()`. Throws
  /// `c10::ValueError` if `skip_all_reduce_unused_params` is set.
  [[nodiscard]] Join join(const JoinOptions& options = {});
  Joinable& joinable(); ///< To share a `Join`; see `join`.

  /// Makes each later backward that reduces end with the optimizer's step, with
  /// bit-identical results. A bucket's parameters are stepped as soon as it is
  /// reduced, while other buckets are in flight. Omit `optimizer.step()`. The
  /// optimizer must outlive this Reducer and treat parameters separately:
  /// throws `c10::ValueError` for others, such as `LBFGS`. Excludes clipping by
  /// the norm of all gradients, and a second backward over the same graph.
  /// Works in a group of one. Collective. Source:
  /// torch/distributed/optim/apply_optimizer_in_backward.py.
  void step_in_backward(torch::optim::Optimizer& optimizer);

  /// `torch::nn::utils::clip_grad_norm_` of all parameters, with one norm and
  /// one scaling per bucket; call it after the backward. Returns the norm
  /// before clipping, a double on the gradients' device, without waiting for a
  /// GPU. Its relative error is 1e-5 at most, unless gradients to the power of
  /// `norm_type` (> 0, also infinity) leave the range of float (for doubles, of
  /// double). As in Python, the norm is then infinite (gradients become zero)
  /// or too small. With `error_if_nonfinite`, waits and throws `c10::Error` if
  /// the norm is infinite or NaN. Not collective.
  at::Tensor clip_grad_norm(
      double max_norm,
      double norm_type = 2.,
      bool error_if_nonfinite = false);

  /// Each bucket's indices into `parameters()`, in the order of reduction.
  std::vector<BucketIndices> buckets() const;

  /// All parameters, including frozen ones, in registration order.
  std::vector<at::Tensor> parameters() const;

  /// The bucket layout, on which the bits of sums depend, and the communication
  /// hook's state. A run that resumes with it (`TrainingState::add`) sums
  /// gradients like an uninterrupted run. Equal on all ranks. Call this and the
  /// methods below between backward passes. Not collective.
  c10::IValue state_dict() const;

  /// Lays the buckets out immediately as in `state`, which all ranks must load.
  /// Bucket sizes and whether buckets are rebuilt come from this Reducer's
  /// options. Throws `c10::Error`, with names, if `state` is for different
  /// parameters; then nothing has changed. Not collective.
  void load_state_dict(const c10::IValue& state);

  /// `CommHook::rank_state_dict`; `TrainingState::add` saves it for each rank.
  c10::IValue rank_state_dict() const;
  void load_rank_state_dict(const c10::IValue& state); ///< See above.

  /// The times of the last backward's buckets; empty without `record`.
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
