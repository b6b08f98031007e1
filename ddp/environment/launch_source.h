#pragma once

#include <ddp/environment/environment.h>

namespace ddp::detail {

/// Who says which of how many processes this one is.
struct LaunchSource {
  enum class Kind {
    /// RANK and WORLD_SIZE, or the program itself: they say where to meet too.
    kExplicit,
    /// A launcher that has no word on where to meet.
    kLauncher,
    /// The same, but Slurm says on which hosts the processes run.
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
  /// What the user may not have meant; mostly empty.
  std::string note;
};

/// Finds it in the order that `read_launch_environment` documents, and throws
/// as that does; none for a process that no one launched.
std::optional<LaunchSource> find_launch_source(
    const ProcessGroupOptions& options,
    const EnvironmentLookup& lookup,
    const PmixQuery& pmix);

} // namespace ddp::detail
