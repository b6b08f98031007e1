#pragma once

#include <string>

namespace ddp::detail {

/// A message about a variable whose name is similar to a variable of ddp; empty
/// if there is none. `variables` are "NAME=VALUE", null-terminated.
std::string misspelt_variable(const char* const* variables);

} // namespace ddp::detail
