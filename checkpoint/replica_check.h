#pragma once

#include <ddp/process_group.h>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace ddp::detail {

/// Objects with their names in a checkpoint.
template <typename T>
using Named = std::vector<std::pair<std::string, const T*>>;

/// Throws `c10::ValueError` on all ranks if the ranks have different `names`:
/// the names of a TrainingState's parts, followed by epochs and sequences of
/// samples. Collective.
void check_same_parts(const std::string& names, const ProcessGroup& group);

/// Throws `c10::ValueError` on all ranks if `call` differs between ranks. The
/// call includes the path, since only rank 0's file is read or written.
/// Collective.
void check_same_call(const std::string& call, const ProcessGroup& group);

/// Like check_same_call(), but warns on rank 0 instead. Collective.
void warn_of_other_calls(const std::string& call, const ProcessGroup& group);

/// Warns, on rank 0 and only in the group's first calls, if these modules'
/// parameters, or these optimizers' types or learning rates, differ between
/// ranks. After a warning about parameters, later calls check nothing.
/// Parameters of a module without a Reducer may differ, unless the group was
/// never split and the module was trained. Collective.
void check_replicas(
    const Named<torch::nn::Module>& modules,
    const Named<torch::optim::Optimizer>& optimizers,
    const ProcessGroup& group);

} // namespace ddp::detail
