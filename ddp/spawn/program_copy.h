#pragma once

#include <string>
#include <vector>

namespace ddp::detail {

/// Returns the original arguments of `main`: `argv` in its current order, or,
/// if arguments were removed since the start, the arguments at the start.
std::vector<std::string> program_arguments(int argc, char** argv);

/// A path that executes this program again, also if its file was moved, deleted
/// or replaced.
std::string program_path();

/// The working directory at the program's start.
const std::string& start_folder();

} // namespace ddp::detail
