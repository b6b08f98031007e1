#pragma once

#include <ddp/process_group.h>

#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace ddp::detail {

/// Warns, on rank 0 and at the group's first call only, if ranks do not hold
/// the same parameters in these modules, which have names. Parameters that no
/// Reducer manages or managed may be each rank's own. Collective.
void check_replicas(
    const std::vector<std::pair<std::string, const torch::nn::Module*>>&
        modules,
    const ProcessGroup& group);

} // namespace ddp::detail
