#include <ddp/module_state.h>

#include <torch/nn/module.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <unordered_set>

namespace ddp {
namespace {

// As in torch.distributed: large enough that latency does not matter, small
// enough that the flat copy does not either.
constexpr size_t kBroadcastBytes = size_t{250} << 20;

template <typename NamedItems, typename Predicate>
NamedTensors unique(const NamedItems& items, Predicate&& wanted) {
  NamedTensors result;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : items) {
    const at::Tensor& tensor = item.value();
    if (tensor.defined() && wanted(tensor) &&
        seen.insert(tensor.unsafeGetTensorImpl()).second) {
      result.names.push_back(item.key());
      result.tensors.push_back(tensor);
    }
  }
  return result;
}

} // namespace

NamedTensors unique_parameters(
    const torch::nn::Module& module,
    bool include_frozen) {
  return unique(module.named_parameters(), [&](const at::Tensor& tensor) {
    return include_frozen || tensor.requires_grad();
  });
}

NamedTensors unique_buffers(const torch::nn::Module& module) {
  return unique(module.named_buffers(), [](const at::Tensor&) { return true; });
}

NamedTensors unique_state(const torch::nn::Module& module) {
  auto state = unique_parameters(module);
  const auto buffers = unique_buffers(module);
  state.names.insert(
      state.names.end(), buffers.names.begin(), buffers.names.end());
  state.tensors.insert(
      state.tensors.end(), buffers.tensors.begin(), buffers.tensors.end());
  return state;
}

void broadcast_tensors(
    const std::vector<at::Tensor>& tensors,
    const ProcessGroup& group) {
  if (!group.c10d()) {
    return;
  }
  // The same storage under a version counter of its own.
  std::vector<at::Tensor> targets;
  for (const auto& tensor : tensors) {
    if (tensor.numel() > 0) {
      targets.push_back(tensor.variable_data());
    }
  }
  if (!targets.empty()) {
    c10d::broadcast_coalesced(group.c10d(), targets, kBroadcastBytes, 0);
  }
}

void broadcast_buffers(torch::nn::Module& module, const ProcessGroup& group) {
  broadcast_tensors(unique_buffers(module).tensors, group);
}

void broadcast_module_state(
    torch::nn::Module& module,
    const ProcessGroup& group) {
  broadcast_tensors(unique_parameters(module).tensors, group);
  broadcast_buffers(module, group);
}

} // namespace ddp
