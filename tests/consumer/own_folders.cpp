// A program whose folders and headers have the names of ddp's own: only ddp's
// public headers are found beside them.

#include <ddp/checkpoint/checkpoint_manager.h>
#include <ddp/reducer.h>
#include <ddp/samplers/distributed_sampler.h>

#include <checkpoint/replica_check.h>
#include <common/text.h>
#include <launcher/job.h>
#include <samplers/batch_memory.h>
#include <tests/support/ranks.h>

static_assert(
    kOwnCheckpointReplicaCheck + kOwnSamplersBatchMemory + kOwnCommonText +
        kOwnLauncherJob + kOwnTestsSupportRanks ==
    31);

ddp::Reducer attach(
    const std::shared_ptr<torch::nn::Module>& net,
    const ddp::ProcessGroup& group) {
  return ddp::Reducer(net, group);
}
