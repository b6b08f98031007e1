#pragma once

/// Everything: `#include <ddp/ddp.h>`.

#include <checkpoint/checkpoint.h>
#include <checkpoint/checkpoint_manager.h>
#include <checkpoint/optimizer_state.h>
#include <checkpoint/torch_file.h>
#include <checkpoint/training_state.h>
#include <ddp/adam.h>
#include <ddp/deterministic.h>
#include <ddp/distributed_data_parallel.h>
#include <ddp/fused_optimizers.h>
#include <ddp/join.h>
#include <ddp/module_state.h>
#include <ddp/parallel_forward.h>
#include <ddp/process_group.h>
#include <ddp/process_group_options.h>
#include <ddp/random_state.h>
#include <ddp/reducer.h>
#include <ddp/reducer_options.h>
#include <ddp/scatter_gather.h>
#include <ddp/seed.h>
#include <ddp/spawn.h>
#include <ddp/stop_signal.h>
#include <ddp/tensor_traversal.h>
#include <ddp/verification.h>
#include <ddp/zero_redundancy_optimizer.h>
#include <samplers/batch_plan.h>
#include <samplers/batch_sampler.h>
#include <samplers/data_loader.h>
#include <samplers/device_prefetcher.h>
#include <samplers/distributed_sampler.h>
#include <samplers/distributed_weighted_sampler.h>
#include <samplers/evaluation_sampler.h>
#include <samplers/stream_sampler.h>
