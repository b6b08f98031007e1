#include <ddp/internal/text_tensor.h>

#include <ATen/ops/empty.h>

#include <algorithm>

namespace ddp::detail {

at::Tensor to_bytes(const std::string& text) {
  auto bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), bytes.mutable_data_ptr<uint8_t>());
  return bytes;
}

std::string to_string(const at::Tensor& bytes) {
  return std::string(
      static_cast<const char*>(bytes.const_data_ptr()), bytes.numel());
}

} // namespace ddp::detail
