#include "resnet_weights.h"

#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/checkpoint/training_state.h>
#include <torch/types.h>

namespace {

using Dict = c10::impl::GenericDict;

Dict new_dict() {
  return Dict(c10::StringType::get(), c10::AnyType::get());
}

/// The tensors by name, out of a whole training's file or a wrapper's names.
Dict tensors_in(const std::string& path) {
  auto value = ddp::read_checkpoint_file(path);
  TORCH_CHECK(value.isGenericDict(), "'", path, "' has no weights by name");
  for (const char* entry : {"model", "state_dict", "net"}) {
    const auto dict = value.toGenericDict();
    if (dict.contains(entry) && dict.at(entry).isGenericDict()) {
      value = dict.at(entry);
      break;
    }
  }
  auto tensors = new_dict();
  const std::string prefix = "module.";
  for (const auto& entry : value.toGenericDict()) {
    if (entry.key().isString() && entry.value().isTensor()) {
      const auto& name = entry.key().toStringRef();
      tensors.insert(
          name.rfind(prefix, 0) == 0 ? name.substr(prefix.size()) : name,
          entry.value());
    }
  }
  return tensors;
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() &&
      text.compare(text.size() - end.size(), end.size(), end) == 0;
}

} // namespace

std::vector<std::string> load_weights(const std::string& path, ResNet& net) {
  auto tensors = tensors_in(path);
  const auto fits = [&](const std::string& name, const torch::Tensor& own) {
    return !tensors.contains(name) ||
        tensors.at(name).toTensor().sizes() == own.sizes();
  };
  const auto conv1 = net.named_parameters()["conv1.weight"];
  TORCH_CHECK(
      fits("conv1.weight", conv1),
      "'",
      path,
      "': conv1.weight has the shape ",
      tensors.at("conv1.weight").toTensor().sizes(),
      " there, and ",
      conv1.sizes(),
      " here; [64, 3, 7, 7] is that of the torchvision stem, [64, 3, 3, 3] of "
      "the cifar stem");

  std::vector<std::string> left_out;
  for (const auto& own : net.named_parameters()) {
    if (own.key().rfind("fc.", 0) == 0 && !fits(own.key(), own.value())) {
      tensors.insert_or_assign(own.key(), own.value().detach());
      left_out.push_back(own.key());
    }
  }
  for (const auto& own : net.named_buffers()) {
    if (ends_with(own.key(), ".num_batches_tracked") &&
        !tensors.contains(own.key())) {
      tensors.insert(own.key(), own.value());
    }
  }
  auto state = new_dict();
  state.insert(path, tensors);
  ddp::TrainingState().add(path, net).load_state_dict(state);
  return left_out;
}
