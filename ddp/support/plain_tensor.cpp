#include <ATen/ATen.h>
#include <ddp/internal/check.h>
#include <ddp/support/plain_memory.h>
#include <ddp/support/plain_tensor.h>

namespace ddp::detail {
namespace {

// The keys of tensors that wrap another tensor, or have no memory.
constexpr c10::DispatchKeySet kWrappers{
    c10::DispatchKey::Python,
    c10::DispatchKey::FuncTorchBatched,
    c10::DispatchKey::FuncTorchGradWrapper,
    c10::DispatchKey::Functionalize,
    c10::DispatchKey::Batched};

} // namespace

std::string why_unreadable(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return "is undefined";
  }
  if (tensor.key_set().has_any(kWrappers)) {
    return "wraps another tensor (in vmap, functionalization, or a Python "
           "subclass); unwrap it first";
  }
  if (tensor.is_nested()) {
    return "is nested; pad it first";
  }
  if (tensor.layout() != at::kStrided) {
    return c10::str("has layout ", tensor.layout(), "; make it dense first");
  }
  if (tensor.is_quantized()) {
    return c10::str(
        "has dtype ", tensor.scalar_type(), "; dequantize it first");
  }
  return tensor.is_meta() ? "is on 'meta': it has no values" : "";
}

void check_readable(const at::Tensor& tensor, const std::string& where) {
  const auto reason = why_unreadable(tensor);
  DDP_CHECK_TYPE(reason.empty(), "{} {}", where, reason);
}

at::Tensor plain_tensor(const at::Tensor& tensor) {
  check_readable(tensor, "a tensor");
  return with_plain_memory(tensor.detach()).cpu().contiguous();
}

} // namespace ddp::detail
