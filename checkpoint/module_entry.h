#pragma once

#include <ddp/checkpoint/checkpoint_file.h>

#include <vector>

namespace ddp::detail {

/// The state of a module in a file.
struct ModuleEntry {
  StateDict tensors;
  /// The names of other values, such as the `_extra_state` of a module.
  std::vector<std::string> others;
};

/// Finds the state of a module with the names `wanted` in the value of a file.
/// The state is the entry `name`. Without a name, the state is the whole value
/// if its names match; otherwise the only entry that is a dict of tensors, or
/// the only such entry with a usual name ("module", "net"). A dict that also
/// has other values counts if it has at least one of the names. Otherwise, or
/// if `omitted`, the entries that were not read, has a usual name and the found
/// entry has none, throws `c10::ValueError` with the entries.
ModuleEntry module_entry(
    const c10::IValue& content,
    const std::string& name,
    const std::vector<std::string>& wanted,
    const std::vector<std::string>& omitted = {});

} // namespace ddp::detail
