#include <ddp/backends/hierarchical/checks.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace ddp::backends::hierarchical {

at::Tensor elements(const char* name, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(
      tensor.is_cpu(),
      name,
      " over hierarchical takes tensors on the CPU, got one on ",
      tensor.device());
  const at::AutoDispatchBelowADInplaceOrView guard;
  return tensor.as_strided({tensor.numel()}, {1});
}

int64_t longest(const std::vector<at::Tensor>& tensors) {
  int64_t length = 0;
  for (const auto& tensor : tensors) {
    length = std::max(length, tensor.numel());
  }
  return length;
}

} // namespace ddp::backends::hierarchical
