#pragma once

#include <ddp/verification.h>

#include <string>

namespace ddp::detail {

/// The tensors of a module that `options` ask for: parameters, then gradients
/// (undefined ones too), then buffers.
NamedTensors checked_tensors(
    const torch::nn::Module& module,
    const VerificationOptions& options);

/// What these are, such as "parameters and gradients".
std::string checked_nouns(const VerificationOptions& options);

} // namespace ddp::detail
