#pragma once

#include <ddp/process_group.h>

namespace ddp::detail {

/// What a batch-norm has besides its input. Undefined weight and bias: none;
/// undefined running statistics: not tracked.
struct BatchNormState {
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor running_mean;
  at::Tensor running_var;
};

/// Batch-norm of `input` (N, C, ...) by the mean and variance of the batches of
/// all ranks, which may differ in size, or be empty. Updates the running
/// statistics. Collective, and its backward too, on `group`. Weight and bias
/// get the gradients of this rank's part.
at::Tensor synchronized_batch_norm(
    const at::Tensor& input,
    const BatchNormState& state,
    double momentum,
    double eps,
    const ProcessGroup& group);

} // namespace ddp::detail
