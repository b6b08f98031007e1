#pragma once

#include <string>
#include <vector>

#include <common/scheduler/environment_lookup.h>
#include <launcher/cli/options.h>

namespace ddp {

/// The file that a shell would run for `name`: `name` itself where it has a
/// slash, else the first executable match in PATH. Throws LaunchError with exit
/// code 127 where there is no such file and 126 where it cannot be executed.
std::string find_program(const std::string& name);

/// What each rank executes.
struct Program {
  std::string file;
  std::vector<std::string> arguments; // argv, its name first
};

/// What a command means: a Python script or module is run by `PYTHON_EXEC` of
/// the environment, else python3, with -u; all others as they are. Throws
/// LaunchError with exit code 127 where the program, the script or Python is
/// not there, and 126 where it cannot be executed.
Program resolve_program(
    ProgramKind kind,
    const std::vector<std::string>& command,
    const EnvironmentLookup& lookup);

/// The arguments of one rank: `${local_rank}` is replaced, as in torchrun, in
/// all of them but the first. (torchrun also makes one `$` of two, which spoils
/// what a shell is given.)
std::vector<std::string> arguments_for(
    const std::vector<std::string>& arguments,
    int local_rank);

} // namespace ddp
