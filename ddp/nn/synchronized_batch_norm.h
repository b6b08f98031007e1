#pragma once

#include <ddp/process_group.h>

namespace ddp::detail {

/// The state of a batch-norm. Weight and bias are undefined for a layer without
/// them; running statistics are undefined if they are not tracked.
struct BatchNormState {
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor running_mean;
  at::Tensor running_var;
  /// The layer's number among those that use the group.
  int64_t number = 0;
};

/// Normalizes `input` (N, C, ...) with the mean and variance over the batches
/// of all ranks, which may differ in size or be empty. Updates the running
/// statistics. Forward and backward are collective on `group`. The gradients of
/// weight and bias are for this rank's part only. On the CPU, throws
/// `c10::ValueError` on all ranks if the number of the layer differs.
at::Tensor synchronized_batch_norm(
    const at::Tensor& input,
    const BatchNormState& state,
    double momentum,
    double eps,
    const ProcessGroup& group);

} // namespace ddp::detail
