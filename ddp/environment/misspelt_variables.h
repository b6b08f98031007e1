#pragma once

#include <string>

namespace ddp::detail {

/// What to say of a variable, "NAME=VALUE" up to a null, whose name is almost
/// one of ddp's; empty if there is none.
std::string misspelt_variable(const char* const* variables);

} // namespace ddp::detail
