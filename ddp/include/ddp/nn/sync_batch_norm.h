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

  /// Returns the normalized input, of shape (N, C) or (N, C, ...). N may differ
  /// between ranks and may be 0. Collective in training, as is the backward
  /// pass if the input requires a gradient. Throws `c10::Error` as collectives
  /// do, and if the number of dimensions is invalid. The backward pass throws
  /// with `create_graph`, since the layer does not support second derivatives.
  at::Tensor forward(const at::Tensor& input);

  /// Writes the name and the options.
  void pretty_print(std::ostream& stream) const override;

  ProcessGroup group; ///< The ranks whose batches are normalized together.

 protected:
  /// Throws `c10::Error` if the number of dimensions is invalid.
  void _check_input_dim(const at::Tensor& input) override;
};

/// Batch normalization over the batches of all ranks, with the result of
/// `torch::nn::BatchNorm1d` to `3d` on the whole batch in one process. Runs on
/// the CPU and on CUDA.
///
///     ddp::SyncBatchNorm2d norm(torch::nn::BatchNormOptions(64), group);
///
/// Options, parameters and buffers are those of torch::nn::BatchNorm, with the
/// same names, so checkpoints can be loaded into either class and into Python's
/// `nn.SyncBatchNorm`. The weight and bias get the gradients of this rank's
/// rows, which a `Reducer` averages. Running statistics are bit-identical on
/// all ranks. In evaluation, and in a group of one, the layer computes as
/// torch::nn::BatchNorm does.
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
/// The module holder of `SyncBatchNorm1dImpl`.
TORCH_MODULE(SyncBatchNorm1d);

/// Like `SyncBatchNorm1d`, for inputs of shape (N, C, H, W).
class DDP_API SyncBatchNorm2dImpl
    : public SyncBatchNormImplBase<2, SyncBatchNorm2dImpl> {
 public:
  using SyncBatchNormImplBase<2, SyncBatchNorm2dImpl>::SyncBatchNormImplBase;
};
/// The module holder of `SyncBatchNorm2dImpl`.
TORCH_MODULE(SyncBatchNorm2d);

/// Like `SyncBatchNorm1d`, for inputs of shape (N, C, D, H, W).
class DDP_API SyncBatchNorm3dImpl
    : public SyncBatchNormImplBase<3, SyncBatchNorm3dImpl> {
 public:
  using SyncBatchNormImplBase<3, SyncBatchNorm3dImpl>::SyncBatchNormImplBase;
};
/// The module holder of `SyncBatchNorm3dImpl`.
TORCH_MODULE(SyncBatchNorm3d);

/// Makes the batch-norm modules of `net` (`torch::nn::BatchNorm1d` to `3d` and
/// derived classes, at any depth) compute as `SyncBatchNorm` does, on a
/// separate communicator. Collective. Returns the names of these modules, as in
/// `named_modules()`. Throws `c10::ValueError` if `net` is null.
///
/// Module objects are not replaced, since a network calls its members, not its
/// list of submodules. Instead, the operator `aten::batch_norm` synchronizes if
/// its weight or running mean belongs to a converted module in training mode.
/// Names, order, parameters, buffers, checkpoints and optimizers are
/// unaffected. The conversion works wherever a module is stored (in members,
/// Sequential, AnyModule), and persists across `to()`, `load` and `train()`. A
/// second call replaces the group; a call with a group of one ends the
/// synchronization. After `net` is destroyed, the communicator exists until the
/// next call or the end of the process.
///
/// A `clone()` is not converted; convert the clone too. Unlike `SyncBatchNorm`,
/// LibTorch's `forward` rejects a rank's batch of one value per channel, but it
/// accepts an empty batch. Submodules of other classes with a buffer
/// `running_var` are not converted; a warning on rank 0 names some of them.
///
/// All ranks must run the same converted modules in the same order, forward and
/// backward. On the CPU, a forward pass throws `c10::ValueError` on all ranks
/// if they run different modules of one width; on GPUs, and in the backward
/// pass, values of different modules mix. Give a module that a rank does not
/// need an empty batch, `x.narrow(0, 0, 0)`, and add `0 * output.sum()` to the
/// loss.
///
/// All other modules use LibTorch's operator, at the cost of a lookup.
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
