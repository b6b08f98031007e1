#pragma once

#include <ddp/checkpoint/checkpoint_file.h>

#include <vector>

namespace ddp::detail {

/// Finds the tensors of a module with the names `wanted` in the value of a
/// file. The tensors are the entry `name`. Without a name, the tensors are the
/// whole value if its names match; otherwise the only entry that is a dict of
/// tensors, or the only such entry with a usual name ("module", "net").
/// Otherwise throws `c10::ValueError` with the entries.
StateDict module_entry(
    const c10::IValue& content,
    const std::string& name,
    const std::vector<std::string>& wanted);

} // namespace ddp::detail
