#pragma once

#include <ddp/checkpoint/checkpoint_file.h>

#include <vector>

namespace ddp::detail {

/// The tensors by name of a module whose own names are `wanted`, in what a file
/// has: all of it, or the entry called `name`, or, without a name, the only
/// entry, or the only one by a usual name, that is a dict of tensors. Throws
/// `c10::ValueError` with the entries otherwise.
StateDict module_entry(
    const c10::IValue& content,
    const std::string& name,
    const std::vector<std::string>& wanted);

} // namespace ddp::detail
