#pragma once

#include <ddp/export.h>
#include <ddp/process_group.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace torch::nn {
class Module;
}

namespace ddp {

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
