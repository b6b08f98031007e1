#pragma once

#include <string>
#include <vector>

namespace ddp::detail {

/// The original arguments of `main`: `argv` in its order, or, if arguments were
/// removed from it since, as they were at the start.
std::vector<std::string> program_arguments(int argc, char** argv);

/// The working directory at the program's start.
const std::string& start_folder();

} // namespace ddp::detail
