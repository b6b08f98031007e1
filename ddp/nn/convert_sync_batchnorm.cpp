#include <ddp/nn/sync_batch_norm.h>

#include <ddp/failure/heartbeat.h>
#include <ddp/nn/batch_norm_operator.h>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>

namespace ddp {
namespace {

template <typename Module>
bool convert(
    const std::shared_ptr<torch::nn::Module>& module,
    const ProcessGroup& group) {
  auto* norm = dynamic_cast<Module*>(module.get());
  if (!norm) {
    return false;
  }
  std::vector<at::Tensor> marks;
  for (const auto& tensor : {norm->weight, norm->running_mean}) {
    if (tensor.defined()) {
      marks.push_back(tensor);
    }
  }
  if (marks.empty()) { // it gets one, which is no buffer of its
    norm->running_mean = at::empty({0});
    marks.push_back(norm->running_mean);
  }
  detail::synchronize_batch_norm_of(marks, module, group);
  return true;
}

template <typename... Modules>
bool is_any(const torch::nn::Module& module) {
  return (dynamic_cast<const Modules*>(&module) || ...);
}

/// Whether it may be a batch-norm of the program's own.
bool looks_alike(const torch::nn::Module& module) {
  namespace nn = torch::nn;
  return module.named_buffers(/*recurse=*/false).contains("running_var") &&
      !is_any<
             SyncBatchNorm1dImpl,
             SyncBatchNorm2dImpl,
             SyncBatchNorm3dImpl,
             nn::InstanceNorm1dImpl,
             nn::InstanceNorm2dImpl,
             nn::InstanceNorm3dImpl>(module);
}

} // namespace

std::vector<std::string> convert_sync_batchnorm(
    const std::shared_ptr<torch::nn::Module>& net,
    const ProcessGroup& group) {
  const detail::heartbeat::Activity activity("convert_sync_batchnorm");
  TORCH_CHECK_VALUE(net, "convert_sync_batchnorm: the module is null");
  const auto own = group.duplicate();
  std::vector<std::string> names;
  for (const auto& item : net->named_modules()) {
    const auto& module = item.value();
    if (convert<torch::nn::BatchNorm1dImpl>(module, own) ||
        convert<torch::nn::BatchNorm2dImpl>(module, own) ||
        convert<torch::nn::BatchNorm3dImpl>(module, own)) {
      names.push_back(item.key());
    } else if (looks_alike(*module)) {
      TORCH_WARN(
          "convert_sync_batchnorm: ",
          item.key(),
          " (",
          module->name(),
          ") has a buffer running_var, but is none of LibTorch's batch-norms: "
          "it is not synchronised.");
    }
  }
  return names;
}

} // namespace ddp
