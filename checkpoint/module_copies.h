#pragma once

#include <ddp/checkpoint/checkpoint.h>
#include <ddp/checkpoint/checkpoint_file.h>

#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
} // namespace torch::nn

namespace ddp::detail {

/// A mapping between the tensors of a module and those of a file.
struct NameMatch {
  /// Name in the module, name in the file.
  std::vector<std::pair<std::string, std::string>> pairs;
  /// Names of the module that are not in the file.
  std::vector<std::string> missing;
  /// Names of the file that are not in the module.
  std::vector<std::string> unexpected;
};

/// Matches names after removing each `module.`, the prefix of Python's
/// DistributedDataParallel. Several names of one list may then be equal (a
/// module may have a child `module`). If the other list has the same number of
/// these names, they are matched in alphabetical order; otherwise none of them
/// is matched. Lists must not contain duplicates; the result is in the order of
/// names, not of the lists.
NameMatch match_names(
    const std::vector<std::string>& module_names,
    const std::vector<std::string>& file_names);

/// Pairs of a module's tensor and the tensor to copy into it.
using Copies = std::vector<std::pair<at::Tensor, at::Tensor>>;

/// Plans the copies of `tensors` into `module`, wrapped or plain, and converts
/// dtypes; all possible failures occur here. A prefix `module.` in names is
/// ignored. Throws `c10::Error` with all names that are missing, unexpected, or
/// of another shape or kind; `source` describes the origin of the tensors. If
/// `keys` is given, missing and unexpected names are stored in it instead, and
/// the function throws only if no name is common. `others` are the names of
/// values that are not tensors, and thus unexpected.
Copies plan_copies(
    const std::string& source,
    const StateDict& tensors,
    const torch::nn::Module& module,
    IncompatibleKeys* keys = nullptr,
    const std::vector<std::string>& others = {});

/// Makes the copies; cannot fail.
void make_copies(const Copies& copies);

} // namespace ddp::detail
