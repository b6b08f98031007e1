#pragma once

#include <string>
#include <vector>

namespace ddp::detail {

/// The arguments that `main` was entered with: `argv`, in its order, unless
/// something has taken some out of it since; then as they were.
std::vector<std::string> program_arguments(int argc, char** argv);

/// Where the program was started.
const std::string& start_folder();

} // namespace ddp::detail
