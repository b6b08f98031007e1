#pragma once

#include <ddp/reducer/buckets/bucket_storage.h>

namespace ddp::detail {

/// Who is told of the course of a reduction.
class ReductionObserver {
 public:
  virtual ~ReductionObserver() = default;

  /// Whether it wants to know of each parameter in the reduction that begins.
  virtual bool watches_parameters() const = 0;
  /// If so: a gradient of this rank's own, before it is averaged. May throw.
  virtual void on_own_gradient(
      const ParameterState& parameter,
      const at::Tensor& gradient) = 0;
  /// If so: the parameter's gradient is in its bucket.
  virtual void on_parameter_ready(size_t index) = 0;
  /// So are all of the bucket's.
  virtual void on_bucket_ready(const Bucket& bucket) = 0;

  /// The bucket's reduction is started; it may be complete right after.
  virtual void on_launch(const Bucket& bucket) = 0;
  virtual void on_launched(const Bucket& bucket) = 0;

  /// The reduction is waited for, which takes until it is complete.
  virtual void on_wait(const Bucket& bucket) = 0;
  /// Called again and again meanwhile. May throw `WaitFailure`.
  virtual void on_long_wait() = 0;
  virtual void on_waited(const Bucket& bucket) = 0;
};

} // namespace ddp::detail
