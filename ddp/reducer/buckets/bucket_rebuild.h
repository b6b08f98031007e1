#pragma once

#include <ddp/reducer/buckets/bucket_storage.h>
#include <ddp/reducer_options.h>

namespace ddp::detail {

/// Lays the buckets out anew after an early backward, in the order in which
/// rank 0's gradients came, so that the first one is complete first: as
/// Python's DistributedDataParallel does.
class BucketRebuild {
 public:
  BucketRebuild(
      const ReducerOptions& options,
      BucketStorage& buckets,
      const ProcessGroup& group);

  /// After which backward, counted from 1; none: never, or it has been done.
  std::optional<int64_t> step() const {
    return step_;
  }
  void set_step(std::optional<int64_t> step) {
    step_ = step;
  }

  /// Begins backward `step`. Notes the order in which gradients come where the
  /// buckets will be rebuilt after it, and where others want to know.
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

  /// Starts to learn rank 0's order, of the parameters that have a bucket.
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
