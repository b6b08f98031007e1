#pragma once

#include <ddp/reducer/core/backward_comparison.h>
#include <ddp/reducer_options.h>

namespace ddp::detail {

/// The parameters that are averaged: those that require a gradient at
/// construction, and those that are unfrozen later.
class UnfrozenParameters {
 public:
  /// All references must outlive this object.
  UnfrozenParameters(
      std::vector<ParameterState>& parameters,
      BucketStorage& buckets,
      BackwardComparison& comparison,
      const ReducerOptions& options);

  /// Adds these parameters, in new buckets, to the averaged parameters.
  void make_trainable(const std::vector<size_t>& indices);
  bool all_trainable() const {
    return trainable_ == parameters_.size();
  }

  /// Records currently unfrozen parameters, which may be frozen again at the
  /// next reduction. All ranks then adopt these parameters, including ranks
  /// without a gradient for them.
  void record();
  /// Same as above, once in each backward pass.
  void record_in(int task);

  /// Adopts unfrozen parameters, and returns whether any were found. Throws
  /// `c10::Error` if these parameters differ between ranks. Collective if any
  /// were found.
  bool adopt(int64_t step);

  /// Prepares a new layout of dense parameters: a parameter is trainable again
  /// once an order passed to `take` contains it.
  void release();
  void take(const BucketStorage::Order& order);

 private:
  std::vector<ParameterState>& parameters_;
  BucketStorage& buckets_;
  BackwardComparison& comparison_;
  const ReducerOptions& options_;
  size_t trainable_ = 0;
  /// The backward pass of the last search.
  int searched_task_ = -1;
};

} // namespace ddp::detail
