#pragma once

#include <optional>
#include <string>

#include <launcher/cli/options/option.h>

namespace ddp {

/// How many ranks --nproc-per-node asks for: a number, or by the CPUs and GPUs
/// that ranks may use. `devices` is what CUDA_VISIBLE_DEVICES will be, none
/// where it is unset. Throws LaunchError (exit code 2) for other texts, and for
/// "gpu" where there is none. Files of the system are looked up under `root`.
int rank_count(
    const OptionValue& value,
    const std::optional<std::string>& devices,
    const std::string& root = "/");

} // namespace ddp
