#pragma once

#include <ddp/checkpoint/checkpoint_file.h>

namespace torch::nn {
class Module;
} // namespace torch::nn

namespace ddp::detail {

/// The module inside any number of wrappers (`WrappedModule`).
torch::nn::Module& unwrapped(torch::nn::Module& module);
const torch::nn::Module& unwrapped(const torch::nn::Module& module);

/// The parameters and buffers of a module by name, without copies.
///
/// Names and order are those of Python's `Module.state_dict()`: the module's
/// own parameters, then its own buffers, then its children, each in the order
/// of registration. Undefined tensors are omitted. Wrappers do not appear in
/// the names.
StateDict named_state(const torch::nn::Module& module);

/// `named_state`, detached as in Python's `Module.state_dict()`: the tensors of
/// a file then do not require gradients.
StateDict detached_state(const torch::nn::Module& module);

} // namespace ddp::detail
