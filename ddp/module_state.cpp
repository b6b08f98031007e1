#include <ddp/module_state.h>

#include <torch/nn/module.h>

#include <ATen/ATen.h>

#include <map>
#include <unordered_set>
#include <utility>

namespace ddp {
namespace {

// As in torch.distributed: large enough that latency does not matter, small
// enough that the flat copy does not either.
constexpr size_t kMessageBytes = size_t{250} << 20;

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

using Message = std::vector<at::Tensor>;

/// Messages of tensors of one dtype and device, none above the limit but where
/// a single tensor is.
std::vector<Message> pack(const std::vector<at::Tensor>& tensors) {
  std::vector<Message> messages;
  struct Open {
    size_t message = 0;
    size_t bytes = kMessageBytes;
  };
  std::map<std::pair<at::ScalarType, std::string>, Open> open;
  for (const auto& tensor : tensors) {
    auto& [message, bytes] =
        open[{tensor.scalar_type(), tensor.device().str()}];
    if (bytes + tensor.nbytes() > kMessageBytes) {
      message = messages.size();
      bytes = 0;
      messages.emplace_back();
    }
    messages[message].push_back(tensor);
    bytes += tensor.nbytes();
  }
  return messages;
}

void broadcast_message(const Message& message, const ProcessGroup& group) {
  std::vector<at::Tensor> flat_tensors;
  for (const auto& tensor : message) {
    flat_tensors.push_back(tensor.reshape({-1}));
  }
  auto flat = at::cat(flat_tensors);
  group.broadcast(flat);
  if (group.rank() == 0) {
    return;
  }
  int64_t start = 0;
  for (const auto& tensor : message) {
    tensor.copy_(flat.narrow(0, start, tensor.numel()).view(tensor.sizes()));
    start += tensor.numel();
  }
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
  const at::NoGradGuard no_grad;
  // The same storage under a version counter of its own.
  std::vector<at::Tensor> targets;
  for (const auto& tensor : tensors) {
    if (tensor.numel() > 0) {
      targets.push_back(tensor.variable_data());
    }
  }
  for (const auto& message : pack(targets)) {
    broadcast_message(message, group);
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
