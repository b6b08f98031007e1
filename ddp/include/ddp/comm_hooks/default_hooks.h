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

/// Sends gradients in another dtype: casts a bucket, reduces it with an inner
/// hook, and casts the result back into the bucket. Buckets of complex numbers
/// reach the inner hook unchanged. Works with every backend.
///
/// Over gloo, values equal those of Python's hooks of the same names bit for
/// bit: each rank divides gradients in the smaller dtype, before the sum.
class DDP_API CompressHook final : public CommHook {
 public:
  /// If `inner` is null, uses an all-reduce. Throws `c10::ValueError` if
  /// `dtype` is not half, bfloat16, float or double.
  explicit CompressHook(
      at::ScalarType dtype,
      std::shared_ptr<CommHook> inner = nullptr);

  std::string describe() const override;
  bool keeps_ranks_equal() const override; ///< As the inner hook.
  std::vector<std::shared_ptr<CommHook>> inner_hooks() const override {
    return {inner_};
  }

  c10::intrusive_ptr<c10::ivalue::Future> run(
      const GradBucket& bucket,
      const ProcessGroup& group) override;

  // The inner hook's state.
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state) override;
  c10::IValue rank_state_dict() const override;
  void load_rank_state_dict(const c10::IValue& state) override;

 private:
  at::ScalarType dtype_;
  std::shared_ptr<CommHook> inner_;
};

/// `CompressHook` with half precision: Python's fp16_compress_hook or, with an
/// `inner` hook, fp16_compress_wrapper.
DDP_API std::shared_ptr<CompressHook> fp16_compress_hook(
    std::shared_ptr<CommHook> inner = nullptr);

/// `CompressHook` with bfloat16, which has the range of float.
DDP_API std::shared_ptr<CompressHook> bf16_compress_hook(
    std::shared_ptr<CommHook> inner = nullptr);

/// Does not reduce: each rank keeps its gradients. Use this hook only to
/// measure the speed of training without the cost of communication.
class DDP_API NoopHook final : public CommHook {
 public:
  bool keeps_ranks_equal() const override {
    return false;
  }
  c10::intrusive_ptr<c10::ivalue::Future> run(
      const GradBucket& bucket,
      const ProcessGroup& group) override;
};

/// Options of `QuantizationHook`.
struct QuantizationOptions {
  /// The number of neighboring elements that share a scale and a zero point.
  /// Unset: all elements of a bucket. Python's quantization_perchannel_hook
  /// uses 512.
  TORCH_ARG(std::optional<int64_t>, channel_size);
};

/// Sends gradients as 8-bit integers: each rank gathers the other ranks'
/// values, scales and zero points, and adds the values in float. A rank thus
/// receives one byte per element from each rank. With fewer than eight ranks,
/// an all-reduce of floats sends more. The quantization is lossy, without error
/// feedback. NaN and infinity become NaN. Buckets of complex numbers are
/// averaged unquantized.
///
/// Over every backend, float values equal those of Python's
/// quantization_pertensor_hook and quantization_perchannel_hook bit for bit.
class DDP_API QuantizationHook final : public CommHook {
 public:
  /// Throws `c10::ValueError` if the channel size is not positive.
  explicit QuantizationHook(const QuantizationOptions& options = {});
  ~QuantizationHook() override;

  std::string describe() const override;

  ProcessGroup connect(const ProcessGroup& group) override;
  c10::intrusive_ptr<c10::ivalue::Future> run(
      const GradBucket& bucket,
      const ProcessGroup& group) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Runs hooks in sequence: the result of each hook is the buffer of the next,
/// and the last result is the bucket's. For instance, the first hook can clip
/// this rank's gradients, and the second can reduce them.
///
/// The chain divides gradients for each hook that takes scaled gradients, so an
/// `AllReduceHook` averages. On the CPU, a thread of the chain calls the hooks
/// for one bucket after another, over separate connections.
class DDP_API HookChain final : public CommHook {
 public:
  /// Throws `c10::ValueError` if the list is empty or contains null.
  explicit HookChain(std::vector<std::shared_ptr<CommHook>> hooks);
  ~HookChain() override;

  std::string describe() const override;

  /// The first hook's value.
  bool takes_scaled_gradients() const override;
  /// Whether at least one hook keeps ranks equal.
  bool keeps_ranks_equal() const override;
  std::vector<std::shared_ptr<CommHook>> inner_hooks() const override;

  ProcessGroup connect(const ProcessGroup& group) override;
  c10::intrusive_ptr<c10::ivalue::Future> run(
      const GradBucket& bucket,
      const ProcessGroup& group) override;

  // The states of the hooks, by index; without hooks that have no state.
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state) override;
  c10::IValue rank_state_dict() const override;
  void load_rank_state_dict(const c10::IValue& state) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace ddp
