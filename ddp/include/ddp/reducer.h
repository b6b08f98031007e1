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

/// Averages gradients over ranks during `backward()`.
///
/// Attach one to a module or to a list of parameters and leave the training
/// loop as it is: when `backward()` returns, each parameter's `grad()` is the
/// mean over ranks of what the ranks computed. Each backward outside of
/// `no_sync` reduces, also a second one over a graph or over another output, so
/// every rank must run the same number of them.
///
/// Ranks may use different parameters. If some ranks have a gradient since the
/// last reduction, it is averaged with what the others have (from before, or
/// zero); if none has, the gradient stays as it was. A backward must reach at
/// least one parameter of the Reducer, or be followed by `finish_backward()`.
///
/// Attach after the module was moved to its device and dtype: converting it
/// later makes the next backward throw. Parameters may be frozen and unfrozen
/// between backwards, on all ranks alike. After a backward the gradients are
/// slices of the buckets: optimizers, clipping and `zero_grad()` work on them;
/// one that has to outlive the next backward must be cloned.
///
/// Values equal those of Python's DistributedDataParallel with the same options
/// bit for bit over gloo. If ranks differ, a peer fails or a gradient cannot be
/// reduced, backward throws a `c10::Error` with the reason; then the Reducer is
/// of no use, and a new one may be constructed on all ranks.
///
/// A group of one without a backend reduces nothing, and refuses at first what
/// a larger one would. Not thread-safe; destroy it on all ranks or on none.
class DDP_API Reducer {
 public:
  /// Manages the parameters of `target`: a module (a shared pointer, a module
  /// holder or, if it outlives the Reducer, a reference), a TorchScript module,
  /// or leaf tensors that require gradients, in a vector or with the names that
  /// messages use, as `named_parameters()` returns them. Unless
  /// `options.init_sync()` is off, checks that all ranks have the same model
  /// and gives them rank 0's parameters and buffers. Collective. Throws
  /// `c10::ValueError`, by name, if no parameter requires a gradient, one
  /// belongs to another Reducer, or, on all ranks, if ranks differ.
  [[nodiscard]] Reducer(
      const detail::ReducerTarget& target,
      const ProcessGroup& group,
      const ReducerOptions& options = {});

  Reducer(Reducer&&) noexcept;
  Reducer& operator=(Reducer&&) noexcept;

  /// Detaches from the parameters, which keep their gradients. Not collective.
  ~Reducer();

  /// While a guard lives, backward only accumulates, without communication; the
  /// next one after that reduces the sum. Guards nest. All ranks must agree.
  using NoSyncGuard = std::shared_ptr<void>;
  [[nodiscard]] NoSyncGuard no_sync();

  /// Whether no guard lives, so that a backward now would communicate.
  bool synchronizes() const;

  /// Takes part in this step's reduction if this rank's backward has not, which
  /// reached no parameter of the Reducer or was none. Call it after backward in
  /// every step, on all ranks, or never. Collective, but under `no_sync`.
  void finish_backward();

  /// Lets ranks have different numbers of steps while it lives. Others, such as
  /// a `ZeroRedundancyOptimizer`, take part in a `Join` of `joinable()` and
  /// them. Throws `c10::ValueError` with `skip_all_reduce_unused_params`.
  [[nodiscard]] Join join(const JoinOptions& options = {});
  Joinable& joinable();

  /// From now on each backward that reduces ends with the optimizer's step, to
  /// the same bits: a bucket's parameters are stepped as soon as it is reduced,
  /// while later buckets are under way. Leave out `optimizer.step()`. The
  /// optimizer must live as long as this Reducer and treat each parameter by
  /// itself (`LBFGS` is refused). Excludes clipping by the norm of all
  /// gradients and a second backward over the same graph. Also in a group of
  /// one. Source: torch/distributed/optim/apply_optimizer_in_backward.py.
  void step_in_backward(torch::optim::Optimizer& optimizer);

  /// `torch::nn::utils::clip_grad_norm_` of all parameters of the Reducer, with
  /// one norm and one scaling per bucket; call it after the backward. Returns
  /// the norm from before, a double if the gradients are, and waits for no GPU.
  /// It is right to 1e-5 of itself, unless powers of gradients by `norm_type`
  /// (> 0, also infinity) leave the range of float, or of double for doubles:
  /// as in Python it is infinite above, so that gradients are zero, and too
  /// small below. With `error_if_nonfinite` throws `c10::Error` for an infinite
  /// or NaN norm, and waits. Not collective.
  at::Tensor clip_grad_norm(
      double max_norm,
      double norm_type = 2.,
      bool error_if_nonfinite = false);

  /// Each bucket's indices into `parameters()`, in the order of reduction.
  std::vector<BucketIndices> buckets() const;

  /// All parameters of the Reducer, frozen ones too, in the order of
  /// registration.
  std::vector<at::Tensor> parameters() const;

  /// How the buckets are laid out, which bits depend on: a run that resumes by
  /// it (`TrainingState::add`) adds gradients as one that never stopped; and
  /// the communication hook's state. Equal on all ranks. To be called between
  /// backwards, as all that follows. Not collective.
  c10::IValue state_dict() const;

  /// Lays the buckets out at once as in `state`, which all ranks must load
  /// alike. Sizes of buckets, and whether they are rebuilt at all, are those of
  /// this Reducer's options. Throws `c10::Error` if `state` is of other
  /// parameters, by name; then nothing has changed. Not collective.
  void load_state_dict(const c10::IValue& state);

  /// `CommHook::rank_state_dict`; `TrainingState::add` keeps it for each rank.
  c10::IValue rank_state_dict() const;
  void load_rank_state_dict(const c10::IValue& state);

  /// What the last backward's buckets did when; empty without `record`.
  Timeline timeline() const;

  /// What this rank has done and how long it took; `summary` has it as a table.
  Statistics statistics() const;

 private:
  friend struct ReducerImpl;

  explicit Reducer(std::shared_ptr<ReducerImpl> impl);

  ReducerImpl& impl() const;
  void end();

  std::shared_ptr<ReducerImpl> impl_;
};

} // namespace ddp
