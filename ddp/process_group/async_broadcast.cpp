#include <ddp/process_group/async_broadcast.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace ddp::detail {

void AsyncBroadcast::start(
    const std::vector<at::Tensor>& tensors,
    const ProcessGroup& group,
    int64_t root) {
  const at::NoGradGuard no_grad;
  messages_.clear();
  receives_ = group.rank() != root;
  for (const auto& tensor : tensors) {
    if (tensor.numel() == 0) {
      continue;
    }
    const auto same = [&](const Message& message) {
      const auto& first = message.tensors.front();
      return first.scalar_type() == tensor.scalar_type() &&
          first.device() == tensor.device();
    };
    auto found = std::find_if(messages_.begin(), messages_.end(), same);
    if (found == messages_.end()) {
      found = messages_.emplace(messages_.end());
    }
    // The same storage with a separate version counter.
    found->tensors.push_back(tensor.variable_data());
  }
  for (auto& message : messages_) {
    std::vector<at::Tensor> parts;
    int64_t count = 0;
    for (const auto& tensor : message.tensors) {
      parts.push_back(tensor.reshape({-1}));
      count += tensor.numel();
    }
    message.flat = receives_ ? at::empty({count}, parts.front().options())
                             : at::cat(parts);
    message.work = group.broadcast_async(message.flat, root);
  }
}

void AsyncBroadcast::finish() {
  const at::NoGradGuard no_grad;
  for (auto& message : messages_) {
    message.work.wait();
    if (!receives_) {
      continue;
    }
    int64_t offset = 0;
    std::vector<at::Tensor> parts;
    for (const auto& tensor : message.tensors) {
      const auto part = message.flat.narrow(0, offset, tensor.numel());
      parts.push_back(part.view(tensor.sizes()));
      offset += tensor.numel();
    }
    at::_foreach_copy_(message.tensors, parts); // one kernel on a GPU
  }
  messages_.clear();
}

} // namespace ddp::detail
