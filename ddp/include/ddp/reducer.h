#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ddp/internal/export.h>
#include <ddp/join.h>
#include <ddp/process_group.h>
#include <ddp/reducer_options.h>
#include <ddp/statistics.h>
#include <torch/nn/pimpl.h>
#include <torch/ordered_dict.h>

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace torch::nn {
class Module;
}
namespace torch::jit {
struct Module;
}
namespace torch::optim {
class Optimizer;
}

namespace ddp {

namespace detail {
class ForwardState;
}
struct ReducerImpl;

/// Averages gradients over ranks during `backward()`.
///
/// Attach one to a module or to a list of parameters and leave the training
/// loop as it is: when `backward()` returns, each parameter's `grad()` is the
/// mean over ranks of what the ranks computed. Gradients are collected in
/// buckets, and a bucket's reduction runs while backward goes on. Each backward
/// outside of `no_sync` reduces, a second one over a retained graph and one
/// over another output too, so every rank must run the same number of them.
///
/// Ranks may use different parameters. Where some ranks have a gradient since
/// the last reduction, it is averaged with what the others have (from before,
/// or zero); where none has, the gradient stays as it was. A backward must
/// reach at least one managed parameter, or be followed by `finish_backward()`.
///
/// Attach after the module was moved to its device and dtype: converting it
/// later makes the next backward throw. Parameters may be frozen and unfrozen
/// between backwards, on all ranks alike. Buffers (the statistics of
/// batch-norm) become rank 0's at the end of each backward that reduces.
///
/// After a backward the gradients are slices of the buckets. Optimizers,
/// clipping and `zero_grad()` work on them as on any gradient; one that has to
/// outlive the next backward must be cloned.
///
/// Values equal those of Python's DistributedDataParallel with the same options
/// bit for bit over gloo: each rank multiplies by 1/size, the sum follows, and
/// the buckets are laid out as there (in the first backward one bucket per
/// dtype, then rebuilt once in rank 0's order of gradients). Source:
/// pytorch/torch/csrc/distributed/c10d/reducer.cpp.
///
/// What a backward throws where ranks differ, a peer fails or a gradient cannot
/// be reduced is a `c10::Error` with the reason; the Reducer is of no use after
/// it, and a new one may be constructed on all ranks.
///
/// With a group of one that has no backend nothing is reduced; what a larger
/// group would refuse is refused in the first two backwards. Not thread-safe;
/// destroy it on all ranks at the same place or not at all. Where it is
/// destroyed before it has reduced anything and a parameter then gets a
/// gradient, or the module has no other owner, a warning says so: it was a
/// temporary or a local variable, or the module was replaced.
class DDP_API Reducer {
 public:
  /// Manages the parameters of `module`. Unless `options.init_sync()` is off,
  /// checks that all ranks have the same model and gives them rank 0's
  /// parameters and buffers. Collective. Throws `c10::ValueError` where no
  /// parameter requires a gradient, where one belongs to another Reducer, or
  /// where ranks differ, by name and, in the last case, on all ranks.
  [[nodiscard]] Reducer(
      const std::shared_ptr<torch::nn::Module>& module,
      const ProcessGroup& group,
      const ReducerOptions& options = {});

  /// For a module on the stack, which must outlive the Reducer.
  [[nodiscard]] Reducer(
      torch::nn::Module& module,
      const ProcessGroup& group,
      const ReducerOptions& options = {});

  /// The same for a module holder, such as `torch::nn::Linear`.
  template <
      typename Holder,
      typename =
          std::enable_if_t<torch::detail::is_module_holder<Holder>::value>>
  [[nodiscard]] Reducer(
      const Holder& module,
      const ProcessGroup& group,
      const ReducerOptions& options = {})
      : Reducer(
            std::shared_ptr<torch::nn::Module>(module.ptr()),
            group,
            options) {}

  /// The same for a TorchScript module.
  [[nodiscard]] Reducer(
      const torch::jit::Module& module,
      const ProcessGroup& group,
      const ReducerOptions& options = {});

  /// The same for leaf tensors that require gradients, by the names that
  /// messages use: what `named_parameters()` returns.
  [[nodiscard]] Reducer(
      const torch::OrderedDict<std::string, at::Tensor>& parameters,
      const ProcessGroup& group,
      const ReducerOptions& options = {});

  /// The same without names; messages call parameters by their index.
  [[nodiscard]] Reducer(
      const std::vector<at::Tensor>& parameters,
      const ProcessGroup& group,
      const ReducerOptions& options = {});

  Reducer(Reducer&&) noexcept;
  Reducer& operator=(Reducer&&) noexcept;

  /// Detaches from the parameters, which keep their gradients. Not collective.
  ~Reducer();

  /// While one lives, backward only accumulates, without communication.
  class NoSyncGuard {
   public:
    NoSyncGuard(NoSyncGuard&&) noexcept = default;
    NoSyncGuard& operator=(NoSyncGuard&&) = delete;
    ~NoSyncGuard();

   private:
    friend class Reducer;

    explicit NoSyncGuard(std::shared_ptr<ReducerImpl> impl);

    std::shared_ptr<ReducerImpl> impl_;
  };

  /// Accumulates gradients locally until the guard is gone; the next backward
  /// after that reduces the sum. Guards nest. All ranks must agree on it.
  [[nodiscard]] NoSyncGuard no_sync();

  /// Whether no guard lives, so that a backward now would communicate.
  bool synchronizes() const;

  /// Takes part in the reduction of this step if this rank's backward has not:
  /// because it reached no managed parameter, or because there was none. Call
  /// it after the backward in every step from the first on, on all ranks, or
  /// never. Does nothing where the step has been reduced, or under `no_sync`.
  /// Collective otherwise.
  void finish_backward();

  /// Lets ranks have different numbers of steps while it lives; see `Join`. To
  /// let others take part, such as a `ZeroRedundancyOptimizer`, construct a
  /// `Join` of `joinable()` and them. Throws `c10::ValueError` with
  /// `skip_all_reduce_unused_params`.
  [[nodiscard]] Join join(const JoinOptions& options = {});
  Joinable& joinable();

  /// From now on each backward that reduces ends with the optimizer's step:
  /// leave out `optimizer.step()`. A bucket's parameters are stepped as soon as
  /// it is reduced, while later buckets are under way, to the same bits as by a
  /// step after backward. The optimizer must live as long as this Reducer and
  /// treat each parameter by itself (`LBFGS` is refused); schedulers and
  /// checkpoints know it as before. Excludes clipping by the norm of all
  /// gradients, and a second backward over the same graph, whose parameters are
  /// new. Also in a group of one. Source: the meaning is that of PyTorch's
  /// torch/distributed/optim/apply_optimizer_in_backward.py.
  void step_in_backward(torch::optim::Optimizer& optimizer);

  /// Scales the gradients of all managed parameters in place so that their
  /// norm, taken as if they were one vector, is at most `max_norm`, and returns
  /// what it was: a double where the gradients are, so that nobody waits for a
  /// GPU. As `torch::nn::utils::clip_grad_norm_`, with one norm and one scaling
  /// per bucket. The norm is right to 1e-5 of itself, unless squares (powers by
  /// `norm_type`) of gradients leave the range of float, or of double for
  /// doubles: as in Python it is infinite above, so that gradients are zero,
  /// and too small below. `norm_type` is > 0, also infinity. Call it after the
  /// backward. Throws `c10::Error` with `error_if_nonfinite` where the norm is
  /// infinite or NaN, which waits for a GPU. Not collective.
  at::Tensor clip_grad_norm(
      double max_norm,
      double norm_type = 2.,
      bool error_if_nonfinite = false);

  /// The parameters of each bucket, by index among all that are managed, in the
  /// order of reduction.
  std::vector<BucketIndices> buckets() const;

  /// All that are managed, frozen ones too, in the order of registration.
  std::vector<at::Tensor> parameters() const;

  /// How the buckets are laid out, which bits depend on: a run that resumes by
  /// it (`TrainingState::add`) adds gradients as one that never stopped. It has
  /// the communication hook's state, and no gradients. Equal on all ranks. Call
  /// it between backwards. Not collective.
  c10::IValue state_dict() const;

  /// Lays the buckets out at once as in `state`, which all ranks must load
  /// alike, between the same backwards. Sizes of buckets, and whether they are
  /// rebuilt at all, are those of this Reducer's options. Throws `c10::Error`
  /// where `state` is of other parameters, by name; then nothing has changed.
  /// Not collective.
  void load_state_dict(const c10::IValue& state);

  /// What the communication hook has of this rank's own, such as errors that it
  /// feeds back; none for most. `TrainingState::add` keeps it for each rank.
  c10::IValue rank_state_dict() const;
  void load_rank_state_dict(const c10::IValue& state);

  /// What the buckets of the last backward did when; empty unless
  /// `options.record()` is on.
  Timeline timeline() const;

  /// What has been done and how long it took, on this rank. `summary` has it as
  /// a table. Call it between backwards. Not collective.
  Statistics statistics() const;

 private:
  friend class detail::ForwardState;

  explicit Reducer(std::shared_ptr<ReducerImpl> impl);

  ReducerImpl& impl() const;
  void end();

  std::shared_ptr<ReducerImpl> impl_;
};

} // namespace ddp
