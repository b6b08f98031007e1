#pragma once

/// The whole library: `#include <ddp/ddp.h>`.

#include <ddp/amp.h>
#include <ddp/checkpoint/checkpoint.h>
#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/checkpoint/checkpoint_manager.h>
#include <ddp/checkpoint/training_state.h>
#include <ddp/comm_hooks/default_hooks.h>
#include <ddp/comm_hooks/post_local_sgd_hook.h>
#include <ddp/comm_hooks/power_sgd_hook.h>
#include <ddp/distributed_data_parallel.h>
#include <ddp/elastic.h>
#include <ddp/join.h>
#include <ddp/metrics.h>
#include <ddp/model_averaging.h>
#include <ddp/module_state.h>
#include <ddp/nn/sync_batch_norm.h>
#include <ddp/optimizers.h>
#include <ddp/parallel_forward.h>
#include <ddp/process_group.h>
#include <ddp/process_group_options.h>
#include <ddp/random.h>
#include <ddp/reducer.h>
#include <ddp/reducer_options.h>
#include <ddp/samplers/batch_sampler.h>
#include <ddp/samplers/data_loader.h>
#include <ddp/samplers/device_prefetcher.h>
#include <ddp/samplers/distributed_sampler.h>
#include <ddp/spawn.h>
#include <ddp/statistics.h>
#include <ddp/tensor_traversal.h>
#include <ddp/zero_redundancy_optimizer.h>

/// Data-parallel training for programs that use LibTorch.
namespace ddp {}
