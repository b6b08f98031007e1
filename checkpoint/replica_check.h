#pragma once

#include <ddp/process_group.h>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace ddp::detail {

/// What has a name in a checkpoint.
template <typename T>
using Named = std::vector<std::pair<std::string, const T*>>;

/// Throws `c10::ValueError` on all ranks if they have different `names` of the
/// parts of a training, or epochs behind them. Collective.
void check_same_parts(const std::string& names, const ProcessGroup& group);

/// Throws `c10::ValueError` on all ranks if they did not make the same `call`,
/// which names its path: only rank 0's is read or written. Collective.
void check_same_call(const std::string& call, const ProcessGroup& group);

/// The same as a warning, on rank 0. Collective.
void warn_of_other_calls(const std::string& call, const ProcessGroup& group);

/// Warns, on rank 0 and in the group's first calls only, if ranks do not hold
/// the same parameters in these modules, or if these optimizers are of another
/// type or learning rate. No call after a warning of parameters looks again.
/// Parameters that never had a Reducer may be each rank's own, unless
/// the group never had a Reducer and the module was trained.
/// Collective.
void check_replicas(
    const Named<torch::nn::Module>& modules,
    const Named<torch::optim::Optimizer>& optimizers,
    const ProcessGroup& group);

} // namespace ddp::detail
