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

/// Sends gradients in another type: casts a bucket, reduces it with another
/// hook, and casts the result back into the bucket. That hook gets a bucket of
/// complex numbers unchanged. Works with every backend.
///
/// Values over gloo are bit for bit those of Python's hooks of the same names:
/// each rank divides in the smaller type, before the sum.
class DDP_API CompressHook final : public CommHook {
 public:
  /// `inner` null: an all-reduce. Throws `c10::ValueError` if `dtype` is not a
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

/// Likewise with bfloat16, which has the range of float.
DDP_API std::shared_ptr<CompressHook> bf16_compress_hook(
    std::shared_ptr<CommHook> inner = nullptr);

/// Does not reduce: each rank keeps its gradients. Only for measuring how fast
/// training would be if communication cost nothing.
class DDP_API NoopHook final : public CommHook {
 public:
  c10::intrusive_ptr<c10::ivalue::Future> run(
      const GradBucket& bucket,
      const ProcessGroup& group) override;
};

/// Options of `QuantizationHook`.
struct QuantizationOptions {
  /// The number of neighbours that share a scale and a zero point; unset: the
  /// bucket. 512 in Python's quantization_perchannel_hook.
  TORCH_ARG(std::optional<int64_t>, channel_size);
};

/// Sends gradients as 8-bit integers: each rank gathers those of the others,
/// with their scales and zero points, and adds them in float. So it receives
/// the bucket's elements as bytes from each rank: less than by an all-reduce of
/// floats among fewer than eight ranks. Lossy, without error feedback. NaN and
/// infinity give NaN. A bucket of other than real numbers is averaged as it is.
///
/// Over every backend, float values are bit for bit those of Python's
/// quantization_pertensor_hook and quantization_perchannel_hook.
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

/// Runs hooks in sequence: the result of each hook is the buffer of the next,
/// and the last result is the bucket's. For instance, one clips this rank's
/// gradients, and the next reduces them.
///
/// If a hook takes scaled gradients, they are divided for it, so an
/// `AllReduceHook` averages. On the CPU, a thread of the chain calls its hooks,
/// one bucket after another, and they get separate connections.
class DDP_API HookChain final : public CommHook {
 public:
  /// Throws `c10::ValueError` if the list is empty, or a hook in it is null.
  explicit HookChain(std::vector<std::shared_ptr<CommHook>> hooks);
  ~HookChain() override;

  std::string describe() const override;

  /// As the first hook.
  bool takes_scaled_gradients() const override;

  c10::intrusive_ptr<c10::ivalue::Future> run(
      const GradBucket& bucket,
      const ProcessGroup& group) override;

  // Those of the hooks that have one, by their index.
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state) override;
  c10::IValue rank_state_dict() const override;
  void load_rank_state_dict(const c10::IValue& state) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace ddp
