#pragma once

#include <ddp/reducer/buckets/bucket_storage.h>
#include <ddp/reducer_options.h>

namespace ddp::detail {

/// Rebuilds the buckets after an early backward pass, in the order of rank 0's
/// gradients, so that the first bucket is complete first, as in Python's
/// DistributedDataParallel.
class BucketRebuild {
 public:
  BucketRebuild(
      const ReducerOptions& options,
      BucketStorage& buckets,
      const ProcessGroup& group);

  /// The reduction after which to rebuild, from 1; `std::nullopt` means never.
  std::optional<int64_t> step() const {
    return step_;
  }
  void set_step(std::optional<int64_t> step) {
    step_ = step;
  }

  /// Begins reduction `step`. Records the order of gradients if buckets will be
  /// rebuilt after this reduction, or if other objects need the order.
  void begin(int64_t step) {
    notes_order_ = step == step_;
    ready_order_.clear();
  }
  void note_order() {
    notes_order_ = true;
  }
  void ready(size_t index) {
    if (notes_order_) {
      ready_order_.push_back(index);
    }
  }
  const BucketStorage::Order& ready_order() const {
    return ready_order_;
  }

  /// Starts to receive rank 0's order of the parameters that have a bucket.
  /// Collective.
  void start(const std::vector<ParameterState>& parameters);
  void finish();

 private:
  const ReducerOptions& options_;
  BucketStorage& buckets_;
  ProcessGroup group_;
  std::optional<int64_t> step_;
  bool notes_order_ = false;
  BucketStorage::Order ready_order_;
  at::Tensor order_;
  Work work_;
};

} // namespace ddp::detail
