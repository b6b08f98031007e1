#pragma once

#include <ddp/comm_hook.h>
#include <ddp/export.h>
#include <torch/arg.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace ddp {

struct QuantizationOptions {
  /// How many neighbours share a scale and a zero point; unset: the bucket.
  /// Python's quantization_perchannel_hook has 512.
  TORCH_ARG(std::optional<int64_t>, channel_size);
};

/// Sends gradients as 8-bit integers: each rank gathers what the others have,
/// with their scales and zero points, and adds that up in float. So it receives
/// the bucket's elements as bytes from each rank: less than by an all-reduce of
/// floats among fewer than eight ranks. Lossy, without error feedback. NaN and
/// infinity give NaN. A bucket whose numbers are not real is averaged as it is.
///
/// Values of float are bit for bit those of Python's
/// quantization_pertensor_hook and quantization_perchannel_hook, over every
/// backend.
class DDP_API QuantizationHook final : public CommHook {
 public:
  /// Throws `c10::ValueError` where the channel size is not positive.
  explicit QuantizationHook(const QuantizationOptions& options = {});
  ~QuantizationHook() override;

  std::string describe() const override;

  c10::intrusive_ptr<c10::ivalue::Future> run(
      const GradBucket& bucket,
      const ProcessGroup& group) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace ddp
