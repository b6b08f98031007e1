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

/// What the command names.
enum class ProgramKind {
  kDetect, // a file that ends in .py is a Python script, all others run as is
  kExecutable, // --no-python
  kModule, // --module: a Python module
  kScript, // --run-path: a Python script, whatever its name
};

/// A host on which a ddprun is to be started.
struct RemoteHost {
  std::string name; // or its address
  int ranks = 0; // 0 for what --nproc-per-node says
};

/// What --hosts, --hostfile and --rsh ask for.
struct RemoteOptions {
  /// Empty if each node's ddprun is started by someone else.
  std::vector<RemoteHost> hosts;
  std::string shell = "ssh";
  /// All options as they were given, by their names: "env", "--env=A=1".
  std::vector<std::pair<std::string, std::string>> given;
};

/// What the command line, and the PET_ variables, ask for; names and meanings
/// as in torchrun.
struct LaunchOptions {
  /// Ranks on this node, at least 1.
  int nproc_per_node = 1;
  NodeOptions nodes;
  /// Where it is to start the ddprun of each node itself.
  RemoteOptions remote;
  /// Whether another ddprun started this one so; see launcher_link.h.
  bool has_remote_launcher = false;
  /// A job of this machine alone, whatever a scheduler says.
  bool standalone = false;
  /// Where the ranks of a job of one node meet.
  std::string master_addr = "127.0.0.1";
  /// 0 for a free one.
  int master_port = 0;
  /// --rdzv-id; empty for one that is drawn, which a job of one node may have.
  std::string run_id;
  std::string role = "default";

  int max_restarts = 0;
  /// From asking a rank to stop to killing it.
  std::chrono::milliseconds grace{30000};
  /// Without progress for so long, ranks that use ddp are taken to hang; 0 for
  /// never.
  std::chrono::milliseconds hang_timeout{0};

  /// Each rank sees its own GPU alone, as number 0 (LOCAL_RANK is 0).
  bool virtual_local_rank = false;
  Binding binding = Binding::kNone;
  /// Variables for the ranks.
  std::vector<std::pair<std::string, std::string>> env;

  OutputOptions output;
  /// Where the report is written as JSON; empty for nowhere.
  std::string report;
  /// Print what would be run, and run nothing.
  bool dry_run = false;

  ProgramKind kind = ProgramKind::kDetect;
  /// The program and its arguments; empty if `answer` is set.
  std::vector<std::string> command;
  /// Text for --help, --version and the like, printed instead of launching.
  std::string answer;
  /// What the user should know about the options, a line each.
  std::vector<std::string> notes;
};

/// Reads the command line and, for options that it does not have, PET_<NAME> of
/// the environment. Options end at the first argument that is none, or after
/// `--`; that one names the program, and all that follows is the program's. Of
/// an option given twice the last value counts. Throws LaunchError (exit code
/// 2) on wrong usage.
LaunchOptions parse_options(
    int argc,
    const char* const* argv,
    const EnvironmentLookup& lookup);

/// What ranks find in a variable of the user's: of --env, else of `lookup`.
std::optional<std::string> rank_variable(
    const LaunchOptions& options,
    const EnvironmentLookup& lookup,
    const char* name);

/// Looks a variable up in this process's environment.
std::optional<std::string> process_environment(const char* name);

} // namespace ddp
