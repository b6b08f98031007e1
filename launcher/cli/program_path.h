#pragma once

#include <string>

namespace ddp {

/// The file that a shell would run for `name`: `name` itself where it has a
/// slash, else the first executable match in PATH. Throws LaunchError with exit
/// code 127 where there is no such file and 126 where it cannot be executed.
std::string find_program(const std::string& name);

} // namespace ddp
