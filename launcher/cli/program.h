#pragma once

#include <string>
#include <vector>

#include <common/scheduler/environment_lookup.h>
#include <launcher/cli/options.h>

namespace ddp {

/// The file that a shell would run for `name`: `name` itself if it contains a
/// slash, otherwise the first executable match in PATH. Throws LaunchError with
/// exit code 127 if the file does not exist, and 126 if it cannot be executed.
std::string find_program(const std::string& name);

/// The program that each rank executes.
struct Program {
  std::string file;
  std::vector<std::string> arguments; // argv, including argv[0]
};

/// The program for a command. A Python script or module runs with -u under the
/// Python that PYTHON_EXEC names, or else python3; other programs run directly.
/// Throws LaunchError with exit code 127 if the program, the script or Python
/// does not exist, and 126 if it cannot be executed.
Program resolve_program(
    ProgramKind kind,
    const std::vector<std::string>& command,
    const EnvironmentLookup& lookup);

/// The arguments of one rank, with `${local_rank}` replaced in all except the
/// first, as in torchrun. (Unlike in torchrun, `$$` does not become `$`, which
/// would corrupt shell commands.)
std::vector<std::string> arguments_for(
    const std::vector<std::string>& arguments,
    int local_rank);

} // namespace ddp
