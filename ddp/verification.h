#pragma once

#include <ddp/module_state.h>
#include <ddp/process_group.h>

#include <string>

namespace ddp {

/// Checks that all ranks hold the same list: names, order, shapes, dtypes and
/// strides of the tensors, which of them require gradients, and `options`, a
/// text. Throws `c10::ValueError` with
/// the same words on every rank: which rank differs from rank 0, in which
/// tensor, and how. Collective.
void verify_same_model(
    const NamedTensors& tensors,
    const std::string& options,
    const ProcessGroup& group);

/// Checks that all ranks hold the same values, bit for bit, in a module's
/// parameters. Throws `c10::Error` with the same words on every rank: which
/// ranks differ from rank 0, in which parameters. Collective.
void verify_same_parameters(
    const torch::nn::Module& module,
    const ProcessGroup& group);

/// A 64-bit hash (XXH3) of the names, shapes and bytes of a module's
/// parameters, equal on any machine of the same byte order.
uint64_t parameter_hash(const torch::nn::Module& module);

} // namespace ddp
