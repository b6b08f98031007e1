#pragma once

#include <ddp/checkpoint/checkpoint_file.h>

namespace ddp::detail {

/// The metadata key of the structure in a safetensors file.
constexpr const char* kTreeKey = "ddp.tree";

/// A value, split into tensors by name and a text for the rest.
struct FlatTree {
  /// Named by their paths, such as "optimizer.state.0.exp_avg".
  StateDict tensors;
  /// JSON; empty if the value is a dict of tensors by these names.
  std::string structure;
};

/// Of a value that `check_writable` allows.
FlatTree flatten(const c10::IValue& value);

/// Restores the value. Throws `c10::Error` if the text is not one of `flatten`,
/// or does not match the tensors.
c10::IValue unflatten(const std::string& structure, const StateDict& tensors);

/// The value that a safetensors file has. Takes the structure out of the
/// metadata.
c10::IValue take_value(SafetensorsFile& file);

/// A dict of tensors.
c10::IValue tree_of(const StateDict& tensors);

} // namespace ddp::detail
