#include <ATen/ATen.h>
#include <ddp/process_group/agreement/broadcast_value.h>
#include <ddp/process_group/agreement/on_rank_0.h>
#include <ddp/support/plain_tensor.h>
#include <torch/csrc/jit/serialization/pickle.h>

namespace ddp::detail {
namespace {

using c10::IValue;

// A value without the contents of its tensors.
struct Header {
  std::string value;
  std::string shapes; // a list of (dtype, sizes)
};

std::string pickle(const IValue& value, std::vector<at::Tensor>* tensors) {
  const auto bytes = torch::jit::pickle(value, tensors);
  return {bytes.begin(), bytes.end()};
}

IValue unpickle(const std::string& bytes, at::TensorList tensors = {}) {
  return torch::jit::unpickle(bytes.data(), bytes.size(), nullptr, tensors);
}

Header header_of(const IValue& value, std::vector<at::Tensor>& tensors) {
  Header header;
  header.value = pickle(value, &tensors);
  std::vector<IValue> shapes;
  for (auto& tensor : tensors) {
    tensor = plain_tensor(tensor);
    shapes.push_back(c10::ivalue::Tuple::create(
        {static_cast<int64_t>(tensor.scalar_type()), tensor.sizes()}));
  }
  header.shapes = pickle(c10::ivalue::Tuple::create(shapes), nullptr);
  return header;
}

std::vector<at::Tensor> empty_tensors(const std::string& shapes) {
  std::vector<at::Tensor> tensors;
  const auto all = unpickle(shapes);
  for (const auto& shape : all.toTupleRef().elements()) {
    const auto& pair = shape.toTupleRef().elements();
    tensors.push_back(at::empty(
        pair[1].toIntVector(), static_cast<at::ScalarType>(pair[0].toInt())));
  }
  return tensors;
}

// Uses a copy on the group's device if that is not the CPU.
void broadcast_cpu_tensor(
    at::Tensor& tensor,
    const ProcessGroup& group,
    int64_t root) {
  if (group.device().is_cpu()) {
    group.broadcast(tensor, root);
    return;
  }
  const auto staged = group.rank() == root
      ? tensor.to(group.device())
      : at::empty_like(tensor, group.device());
  group.broadcast(staged, root);
  if (group.rank() != root) {
    tensor.copy_(staged);
  }
}

} // namespace

IValue broadcast_value(
    const IValue& value,
    const ProcessGroup& group,
    int64_t root) {
  if (group.size() == 1) {
    return value;
  }
  std::vector<at::Tensor> tensors;
  Header header;
  on_each_rank("sending a state", group, [&] {
    if (group.rank() == root) {
      header = header_of(value, tensors);
    }
  });
  header.value = group.broadcast(header.value, root);
  header.shapes = group.broadcast(header.shapes, root);
  if (group.rank() != root) {
    tensors = empty_tensors(header.shapes);
  }
  for (auto& tensor : tensors) {
    if (tensor.numel() > 0) {
      broadcast_cpu_tensor(tensor, group, root);
    }
  }
  return group.rank() == root ? value : unpickle(header.value, tensors);
}

} // namespace ddp::detail
