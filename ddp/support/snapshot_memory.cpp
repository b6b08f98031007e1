#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ddp/support/snapshot_memory.h>

namespace ddp::detail {

at::Tensor SnapshotMemory::copy(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const auto index = next_++;
  if (index == copies_.size()) {
    copies_.emplace_back();
  }
  auto& copy = copies_[index];
  if (!copy.defined() || copy.sizes() != tensor.sizes() ||
      copy.dtype() != tensor.dtype()) {
    copy = at::empty(tensor.sizes(), at::TensorOptions(tensor.dtype()));
  }
  return copy.copy_(tensor);
}

} // namespace ddp::detail
