#pragma once

#include <ddp/internal/export.h>
#include <ddp/process_group.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <cstddef>
#include <memory>
#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

namespace torch::nn {
class Module;
}

namespace ddp {

/// The common part of `SyncBatchNorm1d`, `2d` and `3d`.
template <size_t D, typename Derived>
class DDP_API SyncBatchNormImplBase
    : public torch::nn::NormImplBase<D, Derived, torch::nn::BatchNormOptions> {
 public:
  /// Not collective.
  SyncBatchNormImplBase(
      const torch::nn::BatchNormOptions& options,
      ProcessGroup group);

  /// Returns the normalised input, (N, C) or (N, C, ...). The number of rows
  /// may differ between ranks and be 0. Collective in training, as is its
  /// backward if the input requires a gradient. Throws `c10::Error` as
  /// collectives do and if dimensions do not fit. The backward throws with
  /// create_graph, since there is no second derivative.
  at::Tensor forward(const at::Tensor& input);

  /// Writes the name and the options.
  void pretty_print(std::ostream& stream) const override;

  ProcessGroup group; ///< The ranks whose batches are normalised together.

 protected:
  /// Throws `c10::Error` if the number of dimensions does not fit.
  void _check_input_dim(const at::Tensor& input) override;
};

/// Batch-norm over the batches of all ranks, with the result of
/// `torch::nn::BatchNorm1d` to `3d` on the whole batch in one process. Runs on
/// the CPU and on CUDA.
///
///     ddp::SyncBatchNorm2d norm(torch::nn::BatchNormOptions(64), group);
///
/// Options, parameters and buffers are those of torch::nn::BatchNorm, with the
/// same names, so checkpoints fit both, and Python's `nn.SyncBatchNorm`. Weight
/// and bias get the gradients of this rank's rows; a `Reducer` averages them.
/// Running statistics are bit-identical on all ranks. In evaluation, and in a
/// group of one, the layer computes as torch::nn::BatchNorm does.
///
/// In training, each forward or backward pass is one collective on `group`, so
/// all ranks must run the same passes. Nothing else may use `group` meanwhile.
/// If a Reducer with `share_communicator` uses `group`, pass one
/// `group.duplicate()` to all modules. Source: the same layer in
/// pytorch/torch/nn/modules/_functions.py.
class DDP_API SyncBatchNorm1dImpl
    : public SyncBatchNormImplBase<1, SyncBatchNorm1dImpl> {
 public:
  using SyncBatchNormImplBase<1, SyncBatchNorm1dImpl>::SyncBatchNormImplBase;
};
/// Holds a `SyncBatchNorm1dImpl`, as LibTorch's holders do.
TORCH_MODULE(SyncBatchNorm1d);

/// As `SyncBatchNorm1d`, for inputs (N, C, H, W).
class DDP_API SyncBatchNorm2dImpl
    : public SyncBatchNormImplBase<2, SyncBatchNorm2dImpl> {
 public:
  using SyncBatchNormImplBase<2, SyncBatchNorm2dImpl>::SyncBatchNormImplBase;
};
/// Holds a `SyncBatchNorm2dImpl`, as LibTorch's holders do.
TORCH_MODULE(SyncBatchNorm2d);

/// As `SyncBatchNorm1d`, for inputs (N, C, D, H, W).
class DDP_API SyncBatchNorm3dImpl
    : public SyncBatchNormImplBase<3, SyncBatchNorm3dImpl> {
 public:
  using SyncBatchNormImplBase<3, SyncBatchNorm3dImpl>::SyncBatchNormImplBase;
};
/// Holds a `SyncBatchNorm3dImpl`, as LibTorch's holders do.
TORCH_MODULE(SyncBatchNorm3d);

/// Makes the batch-norms of `net` (`torch::nn::BatchNorm1d` to `3d` and derived
/// classes, at any depth) compute as `SyncBatchNorm` does, on a separate
/// communicator. Collective. Returns the batch-norms' names, as in
/// `named_modules()`. Throws `c10::ValueError` if `net` is null.
///
/// Module objects are not replaced, since a net calls its members and not the
/// list of its submodules. Names, order, parameters, buffers, checkpoints and
/// optimizers are unaffected. Instead, the operator `aten::batch_norm`
/// synchronises if its weight or running mean belongs to a converted module in
/// training mode. Conversion works wherever a module is kept (in members,
/// Sequential, AnyModule), and survives `to()`, `load` and `train()`. A second
/// call replaces the group; a call with a group of one ends the
/// synchronisation.
///
/// A `clone()` is not converted; convert the clone too. Unlike `SyncBatchNorm`,
/// LibTorch's forward rejects a rank's batch of one value per channel; it
/// accepts an empty batch. A submodule of another class with a buffer
/// `running_var` is not converted; a warning names it.
///
/// All other modules use LibTorch's operator, at the cost of a look-up.
DDP_API std::vector<std::string> convert_sync_batchnorm(
    const std::shared_ptr<torch::nn::Module>& net,
    const ProcessGroup& group);

/// As above, for a module holder, such as `torch::nn::Sequential`.
template <
    typename Holder,
    typename = std::enable_if_t<torch::detail::is_module_holder<Holder>::value>>
std::vector<std::string> convert_sync_batchnorm(
    const Holder& net,
    const ProcessGroup& group) {
  return convert_sync_batchnorm(
      std::shared_ptr<torch::nn::Module>(net.ptr()), group);
}

} // namespace ddp
