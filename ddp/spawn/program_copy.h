#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace ddp::detail {

/// The arguments that `main` was entered with: `argv`, in its order, unless
/// something has taken some out of it since; then as they were.
std::vector<std::string> program_arguments(int argc, char** argv);

/// What a copy of this program starts with.
struct ProgramCopy {
  /// `argv`, the program's name first.
  std::vector<std::string> arguments;
  /// As "NAME=value".
  std::vector<std::string> environment;
  /// The descriptor that it inherits besides 1 and 2. Where the program cannot
  /// be executed, the process writes `errno` there and exits with 127.
  int descriptor = -1;
};

/// Starts this program, also where its file has been removed or replaced, in
/// the folder that it was started in. The process dies with the calling thread
/// and reads /dev/null. Throws `c10::Error` where there can be no process.
pid_t start_copy(const ProgramCopy& copy);

} // namespace ddp::detail
