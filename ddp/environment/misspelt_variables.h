#pragma once

#include <string>

namespace ddp::detail {

/// Returns a message about a variable whose name resembles that of a ddp
/// variable; empty if none does. `variables` contains "NAME=VALUE" strings and
/// ends with a null pointer.
std::string misspelt_variable(const char* const* variables);

} // namespace ddp::detail
