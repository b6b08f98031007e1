#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace ddp {

/// What the command line asks for; names and meanings as in torchrun.
struct LaunchOptions {
  /// Ranks on this node, at least 1.
  int nproc_per_node = 1;
  /// From asking a rank to stop to killing it.
  std::chrono::milliseconds grace{30000};
  std::string master_addr = "127.0.0.1";
  /// 0 for a free one.
  int master_port = 0;
  /// The program and its arguments; never empty unless `answer` is set.
  std::vector<std::string> command;
  /// Text for --help or --version, to be printed instead of launching.
  std::string answer;
};

/// Reads the command line. Options end at the first argument that is none, or
/// after `--`; that one names the program, and all that follows is the
/// program's. Throws LaunchError (exit code 2) on wrong usage.
LaunchOptions parse_options(int argc, const char* const* argv);

} // namespace ddp
