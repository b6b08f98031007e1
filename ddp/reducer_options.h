#pragma once

#include <torch/arg.h>

#include <optional>

namespace ddp {

/// Options of `Reducer` and `DistributedDataParallel`, with the names and
/// defaults of Python's DistributedDataParallel.
struct ReducerOptions {
  /// Size at which a bucket is reduced, in MiB; fractions are allowed. Unset:
  /// 25, and 1 for the first bucket, so that communication begins early.
  TORCH_ARG(std::optional<double>, bucket_cap_mb);

  /// Whether the wrapper gives every rank rank 0's buffers (the running
  /// statistics of batch-norm) before each forward that gradients will follow.
  TORCH_ARG(bool, broadcast_buffers) = true;

  /// Whether construction compares the models and gives every rank rank 0's
  /// parameters and buffers. Without it the caller vouches for both.
  TORCH_ARG(bool, init_sync) = true;
};

} // namespace ddp
