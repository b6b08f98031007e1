#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>
#include <ddp/comm_hook.h>
#include <ddp/internal/export.h>
#include <torch/arg.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ddp {

/// Sends gradients in another type: casts a bucket, has it reduced by another
/// hook, and casts the result back into the bucket. A bucket of complex numbers
/// is left to that hook as it is. Works with every backend.
///
/// Values over gloo are bit for bit those of Python's hooks of the same names:
/// each rank divides in the smaller type, before the sum.
class DDP_API CompressHook final : public CommHook {
 public:
  /// `inner` null: an all-reduce. Throws `c10::ValueError` if `dtype` is no
  /// floating-point type.
  explicit CompressHook(
      at::ScalarType dtype,
      std::shared_ptr<CommHook> inner = nullptr);

  std::string describe() const override;

  c10::intrusive_ptr<c10::ivalue::Future> run(
      const GradBucket& bucket,
      const ProcessGroup& group) override;

  // The inner hook's.
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state) override;
  c10::IValue rank_state_dict() const override;
  void load_rank_state_dict(const c10::IValue& state) override;

 private:
  at::ScalarType dtype_;
  std::shared_ptr<CommHook> inner_;
};

/// `CompressHook` with half precision: Python's fp16_compress_hook or, around
/// another hook, fp16_compress_wrapper.
DDP_API std::shared_ptr<CompressHook> fp16_compress_hook(
    std::shared_ptr<CommHook> inner = nullptr);

/// The same with bfloat16, which has the range of float.
DDP_API std::shared_ptr<CompressHook> bf16_compress_hook(
    std::shared_ptr<CommHook> inner = nullptr);

/// Leaves each rank its own gradients: how fast training would be if
/// communication cost nothing. Only for measuring that.
class DDP_API NoopHook final : public CommHook {
 public:
  c10::intrusive_ptr<c10::ivalue::Future> run(
      const GradBucket& bucket,
      const ProcessGroup& group) override;
};

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
  /// Throws `c10::ValueError` if the channel size is not positive.
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

/// Hooks one behind the other: each one's result is the next one's buffer, and
/// the last one's that of the bucket. For instance one that clips this rank's
/// gradients, and one that reduces them.
///
/// Where a hook takes scaled gradients, they are divided for it, so an
/// `AllReduceHook` averages. On the CPU hooks of a chain are called on a thread
/// of the chain's, one bucket after another, and get connections of their own.
class DDP_API HookChain final : public CommHook {
 public:
  /// Throws `c10::ValueError` if there is none, or one is null.
  explicit HookChain(std::vector<std::shared_ptr<CommHook>> hooks);
  ~HookChain() override;

  std::string describe() const override;

  /// What the first one says.
  bool takes_scaled_gradients() const override;

  c10::intrusive_ptr<c10::ivalue::Future> run(
      const GradBucket& bucket,
      const ProcessGroup& group) override;

  // Those of the hooks that have one, by their places.
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state) override;
  c10::IValue rank_state_dict() const override;
  void load_rank_state_dict(const c10::IValue& state) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace ddp
