#include <ATen/ATen.h>
#include <checkpoint/detail/plain_tensor.h>

namespace ddp::detail {

at::Tensor plain_tensor(const at::Tensor& tensor) {
  return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
}

} // namespace ddp::detail
