#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <common/scheduler/environment_lookup.h>
#include <launcher/affinity/cpu_binding.h>
#include <launcher/output/output_options.h>
#include <launcher/rendezvous/node_options.h>

namespace ddp {

/// The kind of program that the command names.
enum class ProgramKind {
  kDetect, // a .py file is a Python script; others run directly
  kExecutable, // --no-python
  kModule, // --module: a Python module
  kScript, // --run-path: a Python script with any name
};

/// A host on which to start a ddprun.
struct RemoteHost {
  std::string name; // or an address
  int ranks = 0; // 0 for the value of --nproc-per-node
};

/// The values of --hosts, --hostfile and --rsh.
struct RemoteOptions {
  /// Empty if this ddprun does not start the ddprun of each node.
  std::vector<RemoteHost> hosts;
  std::string shell = "ssh";
  /// The name and the text of each given option: "env", "--env=A=1".
  std::vector<std::pair<std::string, std::string>> given;
};

/// The options from the command line and the PET_ variables; names and meanings
/// as in torchrun.
struct LaunchOptions {
  /// Ranks on this node, at least 1.
  int nproc_per_node = 1;
  NodeOptions nodes;
  /// For a ddprun that starts the ddprun of each node.
  RemoteOptions remote;
  /// Whether a remote launcher started this ddprun; see launcher_link.h.
  bool has_remote_launcher = false;
  /// A job on this machine only, regardless of a scheduler.
  bool standalone = false;
  /// The address of the ranks' store in a job of one node.
  std::string master_addr = "127.0.0.1";
  /// 0 for a free port.
  int master_port = 0;
  /// --rdzv-id; empty for a random id, which is allowed in a job of one node.
  std::string run_id;
  std::string role = "default";

  int max_restarts = 0;
  /// The time between asking a rank to stop and killing it.
  std::chrono::milliseconds grace{30000};
  /// Ranks that use ddp are considered hung after this time without progress; 0
  /// for never.
  std::chrono::milliseconds hang_timeout{0};

  /// Each rank sees only its own GPU, as number 0 (LOCAL_RANK is 0).
  bool virtual_local_rank = false;
  Binding binding = Binding::kNone;
  /// Variables for the ranks.
  std::vector<std::pair<std::string, std::string>> env;

  OutputOptions output;
  /// The file for the report as JSON; empty for none.
  std::string report;
  /// Whether to print the commands without running them.
  bool dry_run = false;

  ProgramKind kind = ProgramKind::kDetect;
  /// The program and its arguments; empty if `answer` is set.
  std::vector<std::string> command;
  /// Text for --help, --version and similar options, printed instead of
  /// launching.
  std::string answer;
  /// Notes for the user about the options, one per line.
  std::vector<std::string> notes;
};

/// Reads the command line and, for options that are not on it, PET_<NAME> from
/// the environment. Options end at the first argument that is not an option, or
/// after `--`. That argument names the program; the rest are the program's
/// arguments. If an option is given twice, the last value counts. Throws
/// LaunchError (exit code 2) for wrong usage.
LaunchOptions parse_options(
    int argc,
    const char* const* argv,
    const EnvironmentLookup& lookup);

/// The value of the user's variable `name` in ranks: the value in --env,
/// otherwise the value from `lookup`.
std::optional<std::string> rank_variable(
    const LaunchOptions& options,
    const EnvironmentLookup& lookup,
    const char* name);

/// Looks up a variable in this process's environment.
std::optional<std::string> process_environment(const char* name);

} // namespace ddp
