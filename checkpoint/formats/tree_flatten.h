#pragma once

#include <ddp/checkpoint/checkpoint_file.h>

namespace ddp::detail {

/// The metadata key of the structure in a safetensors file.
constexpr const char* kTreeKey = "ddp.tree";

/// A value as tensors by name, and text for the remainder.
struct FlattenedTree {
  /// The tensors, named by their places, such as "optimizer.state.0.exp_avg".
  StateDict tensors;
  /// JSON; empty if the value is a dict of tensors by these names.
  std::string structure;
};

/// Flattens a value that `check_writable` allows.
FlattenedTree tree_flatten(const c10::IValue& value);

/// Restores the value. Throws `c10::Error` if the text is not from
/// `tree_flatten`, or the tensors do not match the text.
c10::IValue tree_unflatten(
    const std::string& structure,
    const StateDict& tensors);

/// The value in a safetensors file. Removes the structure from the metadata.
c10::IValue take_value(SafetensorsFile& file);

/// A dict of tensors.
c10::IValue to_generic_dict(const StateDict& tensors);

} // namespace ddp::detail
