#include <ddp/environment/launch_source.h>

#include <common/scheduler/launcher_names.h>
#include <ddp/internal/check.h>

#include <iterator>
#include <vector>

namespace ddp::detail {
namespace {

using Kind = LaunchSource::Kind;

constexpr int64_t kMaxRanks = 1 << 24;

constexpr LauncherNames kPlain{
    "RANK and WORLD_SIZE",
    "",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK"};

// The processes of an mpirun in an sbatch script inherit the job's variables.
// In salloc's shell, a step of one task, SLURM_NTASKS is the job's or unset.
constexpr LauncherNames kSlurm{
    "Slurm",
    "srun",
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_LOCALID",
    "SLURM_STEP_ID"};

int64_t required(
    std::optional<int64_t> value,
    const char* missing,
    const char* present) {
  DDP_CHECK_VALUE(
      value.has_value(),
      "{} is not set, although {} is: set both, or neither to run alone or "
      "under another launcher",
      missing,
      present);
  return *value;
}

/// If the program numbers the ranks differently, the ranks cannot find each
/// other through the launcher, which uses only its own numbers.
void renumber(LaunchSource& source, const ProcessGroupOptions& options) {
  const auto rank = options.rank().value_or(source.rank);
  const auto size = options.world_size().value_or(source.world_size);
  if (rank != source.rank || size != source.world_size) {
    source.kind = Kind::kExplicit;
    source.rank = rank;
    source.world_size = size;
  }
}

bool is_from(const LauncherNames& names, const EnvironmentLookup& lookup) {
  return (!names.proof || lookup(names.proof)) &&
      (lookup(names.rank) || lookup(names.world_size));
}

/// The source according to one launcher's variables, which `options` override;
/// none if that launcher did not start this process.
std::optional<LaunchSource> read(
    Kind kind,
    const LauncherNames& names,
    const ProcessGroupOptions& options,
    const EnvironmentLookup& lookup) {
  if (!is_from(names, lookup)) {
    return std::nullopt;
  }
  const auto rank = integer_variable(lookup, names.rank, 0, kMaxRanks);
  const auto size = integer_variable(lookup, names.world_size, 1, kMaxRanks);
  LaunchSource source;
  source.kind = kind;
  source.launcher = names.launcher;
  source.rank_name = names.rank;
  source.size_name = names.world_size;
  source.rank =
      required(rank ? rank : options.rank(), names.rank, names.world_size);
  source.world_size = required(
      size ? size : options.world_size(), names.world_size, names.rank);
  renumber(source, options);
  source.local_rank = integer_variable(lookup, names.local_rank, 0, kMaxRanks);
  return source;
}

/// PMIx's variables do not contain the size. A missing library is an error,
/// unless Slurm's variables or RANK are set.
std::optional<LaunchSource> read_pmix(
    const ProcessGroupOptions& options,
    const EnvironmentLookup& lookup,
    const PmixQuery& pmix) {
  if (!lookup("PMIX_RANK") || !lookup("PMIX_NAMESPACE") || !pmix) {
    return std::nullopt;
  }
  const auto job = pmix();
  if (!job || !job->size) {
    DDP_CHECK_VALUE(
        lookup(kSlurm.proof) || lookup(kPlain.rank),
        "PMIX_RANK is set, but its server does not provide the number of ranks "
        "(is libpmix.so.2 installed?): set RANK, WORLD_SIZE, MASTER_ADDR and "
        "MASTER_PORT");
    return std::nullopt;
  }
  LaunchSource source;
  source.kind = Kind::kLauncher;
  source.launcher = "PMIx";
  source.rank_name = "PMIX_RANK";
  source.size_name = "PMIx's job size";
  source.rank = job->rank;
  source.world_size = *job->size;
  renumber(source, options);
  source.local_rank = job->local_rank;
  return source;
}

std::string describe(const LaunchSource& source) {
  return detail::format(
      "{}={} {}={}",
      source.rank_name,
      source.rank,
      source.size_name,
      source.world_size);
}

void check_agreement(const LaunchSource& one, const LaunchSource& other) {
  DDP_CHECK_VALUE(
      one.rank == other.rank && one.world_size == other.world_size,
      "{} and {} contradict each other: unset {} and {} to use {}, or set both "
      "by ProcessGroupOptions().rank(...).world_size(...)",
      describe(one),
      describe(other),
      one.rank_name,
      one.size_name,
      other.launcher);
}

/// The launcher of this process, except plain RANK and WORLD_SIZE.
std::optional<LaunchSource> find_launcher(
    const ProcessGroupOptions& options,
    const EnvironmentLookup& lookup,
    const PmixQuery& pmix) {
  std::optional<LaunchSource> first;
  for (const auto& names : kMpiLaunchers) {
    auto source = read(Kind::kLauncher, names, options, lookup);
    if (source && first) {
      check_agreement(*source, *first);
    } else if (source) {
      first = std::move(source);
    }
  }
  if (!first) {
    first = read_pmix(options, lookup, pmix);
  }
  return first ? first : read(Kind::kSlurm, kSlurm, options, lookup);
}

/// Whether all values are set, as by torchrun and ddprun: then the launcher of
/// these processes does not matter.
bool is_complete(
    const ProcessGroupOptions& options,
    const EnvironmentLookup& lookup) {
  return lookup(kPlain.rank) && lookup(kPlain.world_size) &&
      lookup(kPlain.local_rank) &&
      (lookup("MASTER_ADDR") || !options.master_addr().empty()) &&
      (lookup("MASTER_PORT") || options.master_port());
}

/// Variables of a world of one, left in a shell, make each of mpirun's ranks
/// train alone. Rank 0 warns.
std::string note_if_alone(
    const LaunchSource& plain,
    const EnvironmentLookup& lookup) {
  std::vector<LauncherNames> launchers(
      std::begin(kMpiLaunchers), std::end(kMpiLaunchers));
  launchers.push_back(kSlurm);
  for (const auto& names : launchers) {
    const auto size = lookup(names.world_size).value_or("1");
    if (plain.world_size == 1 && size != "1" && is_from(names, lookup) &&
        lookup(names.rank) == "0") {
      return detail::format(
          "each process forms a group of one, because WORLD_SIZE=1 (with RANK, "
          "LOCAL_RANK, MASTER_ADDR and MASTER_PORT) takes precedence over "
          "{}={}. Unset RANK and WORLD_SIZE to use {}",
          names.world_size,
          size,
          names.launcher);
    }
  }
  return "";
}

std::optional<LaunchSource> find_in_environment(
    const ProcessGroupOptions& options,
    const EnvironmentLookup& lookup,
    const PmixQuery& pmix) {
  if (is_complete(options, lookup)) {
    auto plain = read(Kind::kExplicit, kPlain, options, lookup);
    if (!options.world_size()) {
      plain->note = note_if_alone(*plain, lookup);
    }
    return plain;
  }
  auto launcher = find_launcher(options, lookup, pmix);
  auto plain = read(Kind::kExplicit, kPlain, options, lookup);
  if (launcher && plain) {
    check_agreement(*plain, *launcher);
  }
  return launcher ? launcher : plain;
}

} // namespace

std::optional<LaunchSource> find_launch_source(
    const ProcessGroupOptions& options,
    const EnvironmentLookup& lookup,
    const PmixQuery& pmix) {
  auto source = find_in_environment(options, lookup, pmix);
  if (!source && (options.rank() || options.world_size())) {
    source = LaunchSource();
    source->launcher = "the program";
    source->rank = required(options.rank(), "RANK", "WORLD_SIZE");
    source->world_size = required(options.world_size(), "WORLD_SIZE", "RANK");
  }
  if (source) {
    DDP_CHECK_VALUE(
        source->world_size >= 1 && source->rank >= 0 &&
            source->rank < source->world_size,
        "rank {} is outside the world: {} is {}, so {} must be from 0 to {}",
        source->rank,
        source->size_name,
        source->world_size,
        source->rank_name,
        source->world_size - 1);
  }
  return source;
}

} // namespace ddp::detail
