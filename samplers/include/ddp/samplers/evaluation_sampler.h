#pragma once

#include <ddp/export.h>
#include <ddp/samplers/sharded_sampler.h>

namespace ddp {

/// Gives each sample of a dataset to exactly one rank, in the dataset's order,
/// for evaluation: what padding repeats would count twice. So the first ranks
/// may have one sample more, and one batch more: no collective in the loop, but
/// one after it (`all_reduce` of the sums).
class DDP_API EvaluationSampler : public ShardedSampler {
 public:
  /// The share of this process in `group`. `size` is the dataset's, in samples.
  EvaluationSampler(size_t size, const ProcessGroup& group);

  /// The share of `rank` among `num_replicas`, without a group. Throws
  /// `c10::ValueError` unless 0 <= rank < num_replicas and size > 0.
  EvaluationSampler(size_t size, int64_t num_replicas, int64_t rank);
};

} // namespace ddp
