#pragma once

#include <ddp/reducer/core/backward_comparison.h>
#include <ddp/reducer_options.h>

namespace ddp::detail {

/// Which parameters are averaged: those that require a gradient at
/// construction, and what is unfrozen later.
class UnfrozenParameters {
 public:
  /// All that is referred to must live as long.
  UnfrozenParameters(
      std::vector<ParameterState>& parameters,
      BucketStorage& buckets,
      BackwardComparison& comparison,
      const ReducerOptions& options);

  /// Averages these from now on, in new buckets.
  void manage(const std::vector<size_t>& indices);
  bool all_trainable() const {
    return trainable_ == parameters_.size();
  }

  /// Remembers what is unfrozen now and may be frozen when gradients are
  /// averaged next: all ranks then take it in, also those that had no gradient
  /// for it.
  void find();
  /// The same, once in each backward.
  void find_in(int task);

  /// Takes in what is unfrozen. Returns whether there was anything. Throws
  /// `c10::Error` where that differs between ranks. Collective then.
  bool adopt(int64_t step);

  /// Lays out dense parameters anew: none is trainable until it is in an order
  /// that `take` is given.
  void release();
  void take(const BucketStorage::Order& order);

 private:
  std::vector<ParameterState>& parameters_;
  BucketStorage& buckets_;
  BackwardComparison& comparison_;
  const ReducerOptions& options_;
  size_t trainable_ = 0;
  /// The backward in which they were looked for last.
  int searched_task_ = -1;
};

} // namespace ddp::detail
