#include <ddp/samplers/internal/batch_memory.h>

#include <ddp/internal/check.h>
#include <ddp/support/plain_memory.h>
#include <ddp/support/plain_tensor.h>

#include <ATen/ATen.h>

#include <cstring>

namespace ddp::detail {
namespace {

std::vector<int64_t> with_rows(size_t rows, c10::IntArrayRef sizes) {
  std::vector<int64_t> result{static_cast<int64_t>(rows)};
  result.insert(result.end(), sizes.begin(), sizes.end());
  return result;
}

} // namespace

void StackedTensor::put(
    size_t row,
    size_t rows,
    const at::Tensor& sample,
    size_t index,
    const BatchMemory& memory) {
  DDP_CHECK_VALUE(
      why_unreadable(sample).empty() && sample.is_cpu(),
      "data loader: sample {} is not a dense tensor on the CPU, and cannot be "
      "stacked",
      index);
  std::call_once(allocated_, [&] {
    tensor_ =
        memory.empty(with_rows(rows, sample.sizes()), sample.scalar_type());
  });
  DDP_CHECK_VALUE(
      sample.sizes() == tensor_.sizes().slice(1) &&
          sample.dtype() == tensor_.dtype(),
      "data loader: samples cannot be stacked: sample {} is {}{}, but another "
      "sample of the batch is {}{}",
      index,
      sample.toString(),
      sample.sizes(),
      tensor_.toString(),
      tensor_.sizes().slice(1));
  const auto bytes = sample.nbytes();
  if (sample.is_contiguous() && detail::has_plain_memory(sample)) {
    if (bytes > 0) {
      std::memcpy(
          static_cast<char*>(tensor_.data_ptr()) + row * bytes,
          sample.const_data_ptr(),
          bytes);
    }
  } else {
    tensor_.select(0, static_cast<int64_t>(row)).copy_(sample.detach());
  }
}

} // namespace ddp::detail
