#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/process_group.h>

#include <memory>
#include <vector>

namespace torch::nn {
class Module;
}

namespace ddp::detail {

/// From now on `aten::batch_norm`, where it is given one of `tensors` as its
/// weight or running mean, is synchronised while `module` lives and is
/// training. The first call registers the operator's new kernel.
void synchronize_batch_norm_of(
    const std::vector<at::Tensor>& tensors,
    const std::shared_ptr<torch::nn::Module>& module,
    const ProcessGroup& group);

} // namespace ddp::detail
