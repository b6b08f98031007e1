#pragma once

#include <ddp/checkpoint/checkpoint.h>
#include <ddp/checkpoint/checkpoint_file.h>

namespace torch::nn {
class Module;
} // namespace torch::nn

namespace ddp::detail {

/// Pairs of a module's tensor and the tensor to copy into it.
using Copies = std::vector<std::pair<at::Tensor, at::Tensor>>;

/// Plans which of `tensors` to copy where in `module`, wrapped or plain, and
/// converts dtypes; all possible failures happen here. A prefix `module.` in
/// names is ignored. Throws `c10::Error` with all names that are missing,
/// unexpected, or of another shape or kind; `source` describes the origin of
/// the tensors. With `keys`, missing and unexpected names are stored there
/// instead, and no common name throws.
Copies plan_copies(
    const std::string& source,
    const StateDict& tensors,
    const torch::nn::Module& module,
    IncompatibleKeys* keys = nullptr);

/// Makes the copies; cannot fail.
void make_copies(const Copies& copies);

} // namespace ddp::detail
