#include <ddp/samplers/distributed_sampler.h>

#include <ddp/process_group.h>

namespace ddp {

EvaluationSampler::EvaluationSampler(size_t size, const ProcessGroup& group)
    : EvaluationSampler(size, group.size(), group.rank()) {
  check_same(group);
}

EvaluationSampler::EvaluationSampler(
    size_t size,
    int64_t num_replicas,
    int64_t rank)
    : ShardedSampler(
          "EvaluationSampler",
          size,
          num_replicas,
          rank,
          Remainder::kUneven) {}

} // namespace ddp
