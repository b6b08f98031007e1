#include <ddp/module_state.h>

#include <ddp/failure/heartbeat.h>
#include <ddp/process_group/async_broadcast.h>

#include <torch/nn/module.h>

#include <unordered_set>

namespace ddp {
namespace {

// As in torch.distributed: large enough that latency does not matter, small
// enough that the flat copy does not matter.
constexpr size_t kMessageBytes = size_t{250} << 20;

template <typename NamedItems>
NamedTensors unique(const NamedItems& items) {
  NamedTensors result;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : items) {
    const at::Tensor& tensor = item.value();
    if (tensor.defined() && seen.insert(tensor.unsafeGetTensorImpl()).second) {
      result.append(item.key(), tensor);
    }
  }
  return result;
}

void broadcast_message(
    const std::vector<at::Tensor>& tensors,
    const ProcessGroup& group,
    int64_t root) {
  detail::AsyncBroadcast broadcast;
  broadcast.start(tensors, group, root);
  broadcast.finish();
}

} // namespace

void NamedTensors::append(const std::string& name, const at::Tensor& tensor) {
  names.push_back(name);
  tensors.push_back(tensor);
}

void NamedTensors::append(const NamedTensors& others) {
  names.insert(names.end(), others.names.begin(), others.names.end());
  tensors.insert(tensors.end(), others.tensors.begin(), others.tensors.end());
}

NamedTensors unique_parameters(const torch::nn::Module& module) {
  return unique(module.named_parameters());
}

NamedTensors unique_buffers(const torch::nn::Module& module) {
  return unique(module.named_buffers());
}

NamedTensors unique_state(const torch::nn::Module& module) {
  auto state = unique_parameters(module);
  state.append(unique_buffers(module));
  return state;
}

void broadcast_tensors(
    const std::vector<at::Tensor>& tensors,
    const ProcessGroup& group,
    int64_t root) {
  const detail::heartbeat::Activity activity("broadcast_tensors");
  if (!group.c10d()) {
    return;
  }
  std::vector<at::Tensor> message;
  size_t bytes = 0;
  for (const auto& tensor : tensors) {
    bytes += tensor.nbytes();
    if (bytes > kMessageBytes) {
      broadcast_message(std::exchange(message, {}), group, root);
      bytes = tensor.nbytes();
    }
    message.push_back(tensor);
  }
  broadcast_message(message, group, root);
}

void broadcast_buffers(torch::nn::Module& module, const ProcessGroup& group) {
  const detail::heartbeat::Activity activity("broadcast_buffers");
  broadcast_tensors(unique_buffers(module).tensors, group);
}

void broadcast_module_state(
    torch::nn::Module& module,
    const ProcessGroup& group) {
  const detail::heartbeat::Activity activity("broadcast_module_state");
  broadcast_tensors(unique_parameters(module).tensors, group);
  broadcast_buffers(module, group);
}

} // namespace ddp
