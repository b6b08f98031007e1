#include <ATen/ATen.h>
#include <checkpoint/command/tensor_difference.h>
#include <ddp/support/plain_tensor.h>

#include <algorithm>
#include <cstring>

namespace ddp::command {
namespace {

// Of contiguous tensors: those whose bits differ.
at::Tensor differing_bits(const at::Tensor& a, const at::Tensor& b) {
  const auto bytes = [](const at::Tensor& tensor) {
    return tensor.unsqueeze(-1).view(at::kByte);
  };
  return bytes(a).ne(bytes(b)).any(-1);
}

at::Tensor wide(const at::Tensor& tensor) {
  return tensor.to(tensor.is_complex() ? at::kComplexDouble : at::kDouble);
}

void add_piece(
    const at::Tensor& a,
    const at::Tensor& b,
    const Tolerance& tolerance,
    TensorDifference& difference) {
  if (std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0) {
    return;
  }
  const auto differing = differing_bits(a, b);
  auto left = wide(a.masked_select(differing));
  auto right = wide(b.masked_select(differing));
  if (tolerance.any()) {
    const auto far = at::isclose(
                         left,
                         right,
                         tolerance.relative,
                         tolerance.absolute,
                         /*equal_nan=*/true)
                         .logical_not();
    left = left.masked_select(far);
    right = right.masked_select(far);
  }
  const auto nan = at::isnan(left).logical_or(at::isnan(right));
  const auto distance = (left - right).abs().masked_select(nan.logical_not());
  difference.elements += left.numel();
  difference.with_nan += nan.sum().item<int64_t>();
  if (distance.numel() > 0) {
    difference.largest =
        std::max(difference.largest, distance.max().item<double>());
  }
}

} // namespace

TensorDifference difference_of(
    const at::Tensor& a,
    const at::Tensor& b,
    const Tolerance& tolerance) {
  constexpr int64_t kPiece = 1 << 20; // bounds what copies take
  const auto left = detail::plain_tensor(a).flatten();
  const auto right = detail::plain_tensor(b).flatten();
  TensorDifference difference;
  for (int64_t begin = 0; begin < left.numel(); begin += kPiece) {
    const auto count = std::min(kPiece, left.numel() - begin);
    add_piece(
        left.narrow(0, begin, count),
        right.narrow(0, begin, count),
        tolerance,
        difference);
  }
  return difference;
}

} // namespace ddp::command
