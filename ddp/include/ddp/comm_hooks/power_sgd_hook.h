#pragma once

#include <ATen/core/ivalue.h>
#include <ddp/comm_hook.h>
#include <ddp/internal/export.h>
#include <torch/arg.h>

#include <cstdint>
#include <memory>
#include <string>

namespace ddp {

/// Options of `PowerSGDHook`, with the names and defaults of Python's
/// PowerSGDState; `start_iteration` is Python's start_powerSGD_iter.
struct PowerSGDOptions {
  /// The number of columns of the factors. More columns are more exact but cost
  /// more.
  TORCH_ARG(int64_t, matrix_approximation_rank) = 1;

  /// The number of initial backward passes that average without compression.
  TORCH_ARG(int64_t, start_iteration) = 1000;

  /// Gradients are compressed if compression saves more than this factor; other
  /// gradients, such as biases, are averaged uncompressed.
  TORCH_ARG(double, min_compression_rate) = 2;

  /// Whether the compression error is added to this rank's next gradient.
  TORCH_ARG(bool, use_error_feedback) = true;

  /// Whether factors start from the previous step's factors, not from random
  /// values.
  TORCH_ARG(bool, warm_start) = true;

  /// The number to add to a column's norm before the column is divided by it.
  /// As in Python, has no effect on float and double matrices whose
  /// approximation has three or more columns.
  TORCH_ARG(double, orthogonalization_epsilon) = 0;

  /// The seed of the random factors, from 0 to 2^32 - 1.
  TORCH_ARG(int64_t, random_seed) = 0;

  /// Whether one operation compresses all gradients of one shape in a bucket,
  /// at the cost of a copy.
  TORCH_ARG(bool, batch_tensors_with_same_shape) = false;

  /// Whether to compress a whole bucket at once, as a square matrix padded with
  /// zeros. This variant is faster but less exact, and ignores
  /// `min_compression_rate`. Source: Python's batched_powerSGD_hook.
  TORCH_ARG(bool, whole_bucket) = false;
};

/// PowerSGD: averages low-rank factors of gradient matrices, which are much
/// smaller than the matrices. The compression is lossy; a rank adds its error
/// to its next gradient.
///
/// The state contains the number of backward passes, the random generator and
/// the factors; each rank's state contains its errors. A new bucket layout
/// resets factors and errors. Buckets of complex numbers are averaged
/// uncompressed.
///
/// Over gloo, values equal those of Python's powerSGD_hook bit for bit if
/// Python has one bucket, or waits for each bucket. Otherwise, callbacks start
/// Python's collectives, in an order that may differ between ranks. If Python
/// returns NaN (for a matrix of zeros with an epsilon of 0), this hook returns
/// zero.
///
/// Errors take as much memory as the bucket, and a reduction needs the same
/// amount again, twice with `whole_bucket`. Source: Vogels, Karimireddy and
/// Jaggi, https://arxiv.org/abs/1905.13727.
class DDP_API PowerSGDHook final : public CommHook {
 public:
  /// Throws `c10::ValueError` for invalid options. Error feedback and warm
  /// start need a `start_iteration` of 2 or more, since buckets are not final
  /// before.
  explicit PowerSGDHook(const PowerSGDOptions& options = {});
  ~PowerSGDHook() override;

  std::string describe() const override;

  ProcessGroup connect(const ProcessGroup& group) override;
  c10::intrusive_ptr<c10::ivalue::Future> run(
      const GradBucket& bucket,
      const ProcessGroup& group) override;

  /// The ratio of elements reduced to elements sent since `start_iteration`; 0
  /// before that pass. Call this method between passes.
  double compression_rate() const;

  c10::IValue state_dict() const override;
  /// Resets errors; call this method before `load_rank_state_dict`.
  void load_state_dict(const c10::IValue& state) override;
  /// This rank's errors; none without error feedback.
  c10::IValue rank_state_dict() const override;
  void load_rank_state_dict(const c10::IValue& state) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace ddp
