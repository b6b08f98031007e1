#pragma once

#include <ddp/checkpoint/checkpoint.h>
#include <ddp/checkpoint/checkpoint_file.h>

namespace torch::nn {
class Module;
} // namespace torch::nn

namespace ddp::detail {

/// A module's tensor, and the one that is to be copied into it.
using Copies = std::vector<std::pair<at::Tensor, at::Tensor>>;

/// Which of `tensors` goes where in `module`, wrapped or plain, with dtypes
/// converted: all that can fail happens here. Names are matched up to
/// `module.`. Throws `c10::Error` with all names that are missing, unexpected,
/// or of another shape or kind; `source` says where the tensors are from. With
/// `keys`, the first two are put there instead, and no name in common throws.
Copies plan_copies(
    const std::string& source,
    const StateDict& tensors,
    const torch::nn::Module& module,
    IncompatibleKeys* keys = nullptr);

/// Makes the copies, which cannot fail.
void make_copies(const Copies& copies);

} // namespace ddp::detail
