#include <ddp/model/tensor_contents.h>

#include <ddp/support/plain_memory.h>

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>

namespace ddp::detail {

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return "undefined";
  }
  auto text = c10::str(tensor.scalar_type(), " ", tensor.sizes());
  if (tensor.layout() != at::kStrided) {
    text += c10::str(" ", tensor.layout());
  }
  return text;
}

std::vector<at::Tensor> dense_parts(const at::Tensor& tensor) {
  auto values = tensor.detach();
  if (values.layout() == at::kStrided) {
    // Conjugation and negation may be pending, as flags on the tensor.
    return {with_plain_memory(values)};
  }
  const auto sparse = values.to_sparse().coalesce();
  return {with_plain_memory(sparse.values()), sparse.indices()};
}

uint64_t tensor_hash(const at::Tensor& tensor, uint64_t seed) {
  for (const auto& part : dense_parts(tensor)) {
    const auto bytes = part.cpu().contiguous();
    seed = XXH3_64bits_withSeed(
        bytes.const_data_ptr(), static_cast<size_t>(bytes.nbytes()), seed);
  }
  return seed;
}

bool is_same_on_all(uint64_t hash, const ProcessGroup& group) {
  const auto hashes = group.all_gather(
      at::scalar_tensor(static_cast<int64_t>(hash), at::kLong));
  return std::all_of(hashes.begin(), hashes.end(), [&](const auto& other) {
    return other.equal(hashes[0]);
  });
}

NotFinite count_not_finite(const at::Tensor& values) {
  const bool counts = values.is_floating_point() || values.is_complex();
  if (!counts || values.numel() == 0) {
    return {};
  }
  if (c10::isFloat8Type(values.scalar_type())) {
    return count_not_finite(values.to(at::kFloat)); // few operators support it
  }
  // Unlike a sum, extremes do not overflow; a NaN makes both of them NaN.
  const auto [low, high] = at::aminmax(as_real(values));
  if (std::isfinite(low.item<double>()) && std::isfinite(high.item<double>())) {
    return {};
  }
  return {
      values.isnan().sum().item<int64_t>(),
      values.isinf().sum().item<int64_t>()};
}

} // namespace ddp::detail
