#pragma once

#include <ddp/environment/environment.h>

namespace ddp::detail {

/// The source of this process's rank and the number of processes.
struct LaunchSource {
  enum class Kind {
    /// RANK and WORLD_SIZE, or the program's options. The store's address is
    /// also set explicitly.
    kExplicit,
    /// A launcher that does not set the store's address.
    kLauncher,
    /// Slurm, which does not set the store's address, but lists the hosts.
    kSlurm,
  };

  Kind kind = Kind::kExplicit;
  std::string launcher;
  /// The variables' names, for messages.
  std::string rank_name = "RANK";
  std::string size_name = "WORLD_SIZE";
  int64_t rank = 0;
  int64_t world_size = 1;
  std::optional<int64_t> local_rank;
  /// A note about a probable mistake; usually empty.
  std::string note;
};

/// Finds the source in the order that `read_launch_environment` documents, and
/// throws the same exceptions. Returns `std::nullopt` for a process without a
/// launcher.
std::optional<LaunchSource> find_launch_source(
    const ProcessGroupOptions& options,
    const EnvironmentLookup& lookup,
    const PmixQuery& pmix);

} // namespace ddp::detail
