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

/// What `SyncBatchNorm1d`, `2d` and `3d` have in common.
template <size_t D, typename Derived>
class DDP_API SyncBatchNormImplBase
    : public torch::nn::NormImplBase<D, Derived, torch::nn::BatchNormOptions> {
 public:
  /// Without communication.
  SyncBatchNormImplBase(
      const torch::nn::BatchNormOptions& options,
      ProcessGroup group);

  /// Returns the normalised input, (N, C) or (N, C, ...), of which each rank
  /// has its own number of rows, also 0. While training collective; so is the
  /// backward of an input that requires a gradient. Throws `c10::Error` as
  /// collectives do and if dimensions do not fit, and in its backward if that
  /// has create_graph: it has no second derivative.
  at::Tensor forward(const at::Tensor& input);

  void pretty_print(std::ostream& stream) const override;

  ProcessGroup group;

 protected:
  void _check_input_dim(const at::Tensor& input) override;
};

/// Batch-norm over the batches of all ranks: what `torch::nn::BatchNorm1d` to
/// `3d` compute where one process has the whole batch, on the CPU as on CUDA.
///
///     ddp::SyncBatchNorm2d norm(torch::nn::BatchNormOptions(64), group);
///
/// Options, parameters and buffers are those of torch::nn::BatchNorm, by their
/// names too, so that checkpoints fit both, and Python's `nn.SyncBatchNorm`.
/// Weight and bias get the gradient of this rank's rows; a `Reducer` averages
/// it as any other. Running statistics are the same bits on all ranks. In
/// evaluation, and in a group of one, it is torch::nn::BatchNorm.
///
/// In training each forward is one collective on `group` and each backward
/// another, so all ranks must run the same of them. Nothing else may be under
/// way there, and a Reducer with `share_communicator` is: then give the modules
/// `group.duplicate()`, one for all of them. Source: the same layer in
/// pytorch/torch/nn/modules/_functions.py.
class DDP_API SyncBatchNorm1dImpl
    : public SyncBatchNormImplBase<1, SyncBatchNorm1dImpl> {
 public:
  using SyncBatchNormImplBase<1, SyncBatchNorm1dImpl>::SyncBatchNormImplBase;
};
TORCH_MODULE(SyncBatchNorm1d);

/// The same for inputs (N, C, H, W).
class DDP_API SyncBatchNorm2dImpl
    : public SyncBatchNormImplBase<2, SyncBatchNorm2dImpl> {
 public:
  using SyncBatchNormImplBase<2, SyncBatchNorm2dImpl>::SyncBatchNormImplBase;
};
TORCH_MODULE(SyncBatchNorm2d);

/// The same for inputs (N, C, D, H, W).
class DDP_API SyncBatchNorm3dImpl
    : public SyncBatchNormImplBase<3, SyncBatchNorm3dImpl> {
 public:
  using SyncBatchNormImplBase<3, SyncBatchNorm3dImpl>::SyncBatchNormImplBase;
};
TORCH_MODULE(SyncBatchNorm3d);

/// From now on the batch-norms of `net` (`torch::nn::BatchNorm1d` to `3d`, at
/// any depth, and classes derived from them) compute as `SyncBatchNorm` does,
/// on a communicator of their own. Collective. Returns their names, as in
/// `named_modules()`.
///
/// The modules stay the objects that they are, since a net calls its members
/// without asking the list of its submodules: names, order, parameters,
/// buffers, checkpoints and what optimizers hold are untouched. What changes is
/// the operator that their forward calls, `aten::batch_norm`: where it is given
/// a weight or running mean of these modules, and the module is training, it is
/// synchronised. So it holds wherever a module is kept (in members, Sequential,
/// AnyModule), over `to()`, `load` and `train()`. A second call replaces the
/// group; one with a group of one ends the synchronisation.
///
/// It does not hold for a `clone()`: convert that too. A rank's batch of one
/// value per channel is refused by LibTorch's own forward (`SyncBatchNorm`
/// takes it), an empty one is not. A submodule of another class with a buffer
/// `running_var` is left as it is, with a warning that names it.
///
/// For all that does not belong to such a module the operator is LibTorch's, at
/// the cost of a look-up.
DDP_API std::vector<std::string> convert_sync_batchnorm(
    const std::shared_ptr<torch::nn::Module>& net,
    const ProcessGroup& group);

/// The same for a module holder, such as `torch::nn::Sequential`.
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
