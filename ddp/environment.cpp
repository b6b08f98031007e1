#include <ddp/environment.h>

#include <c10/util/Exception.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace ddp {
namespace {

/// The variables by which one kind of launcher numbers its processes.
struct Convention {
  const char* launcher;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  /// Set only in processes that the launcher really started, where `rank`
  /// alone does not prove that (an sbatch script has SLURM_PROCID as well).
  const char* proof;
};

// mpirun inside a Slurm allocation leaves SLURM_PROCID=0 in every process:
// MPI's variables have to be looked at before Slurm's.
constexpr std::array<Convention, 4> kConventions{{
    {"torchrun or ddprun", "RANK", "WORLD_SIZE", "LOCAL_RANK", nullptr},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     nullptr},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", nullptr},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_ID"},
}};

std::optional<int64_t> integer(
    const EnvironmentLookup& lookup,
    const char* name,
    int64_t min,
    int64_t max) {
  const auto text = lookup(name);
  if (!text) {
    return std::nullopt;
  }
  int64_t value = 0;
  const auto* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  TORCH_CHECK_VALUE(
      error == std::errc() && stop == end && value >= min && value <= max,
      name,
      "='",
      *text,
      "' in the environment is not an integer from ",
      min,
      " to ",
      max);
  return value;
}

constexpr int64_t kMaxRanks = 1 << 24;

const Convention* find_convention(const EnvironmentLookup& lookup) {
  for (const auto& convention : kConventions) {
    const bool named = lookup(convention.rank) || lookup(convention.world_size);
    if (named && (!convention.proof || lookup(convention.proof))) {
      return &convention;
    }
  }
  return nullptr;
}

int64_t required(
    std::optional<int64_t> value,
    const char* missing,
    const char* present) {
  TORCH_CHECK_VALUE(
      value.has_value(),
      missing,
      " is not set, although ",
      present,
      " is: set both, or neither to run alone");
  return *value;
}

void read_ranks(
    LaunchEnvironment& result,
    const ProcessGroupOptions& options,
    const EnvironmentLookup& lookup) {
  const auto* convention = find_convention(lookup);
  auto rank = options.rank();
  auto world_size = options.world_size();
  if (convention) {
    if (!rank) {
      rank = integer(lookup, convention->rank, 0, kMaxRanks);
    }
    if (!world_size) {
      world_size = integer(lookup, convention->world_size, 1, kMaxRanks);
    }
    result.local_rank = integer(lookup, convention->local_rank, 0, kMaxRanks);
  }
  if (!rank && !world_size) {
    return;
  }
  const auto& names = convention ? *convention : kConventions.front();
  result.rank = required(rank, names.rank, names.world_size);
  result.world_size = required(world_size, names.world_size, names.rank);
  TORCH_CHECK_VALUE(
      result.world_size >= 1 && result.rank >= 0 &&
          result.rank < result.world_size,
      "rank ",
      result.rank,
      " is outside the world: ",
      names.world_size,
      " is ",
      result.world_size,
      ", so ",
      names.rank,
      " must be from 0 to ",
      result.world_size - 1);
}

void read_meeting_point(
    LaunchEnvironment& result,
    const ProcessGroupOptions& options,
    const EnvironmentLookup& lookup) {
  result.master_addr = options.master_addr();
  if (result.master_addr.empty()) {
    result.master_addr = lookup("MASTER_ADDR").value_or("");
  }
  auto port = options.master_port();
  if (!port) {
    port = integer(lookup, "MASTER_PORT", 1, 65535);
  }
  TORCH_CHECK_VALUE(
      !result.master_addr.empty(),
      "MASTER_ADDR is not set: this is rank ",
      result.rank,
      " of ",
      result.world_size,
      ", and the ranks need the host of rank 0 to meet "
      "(under mpirun: -x MASTER_ADDR=... -x MASTER_PORT=...)");
  TORCH_CHECK_VALUE(
      port.has_value(),
      "MASTER_PORT is not set: the ranks meet at a free TCP port on ",
      result.master_addr);
  TORCH_CHECK_VALUE(
      *port >= 1 && *port <= 65535,
      "master port ",
      *port,
      " is not from 1 to 65535");
  result.master_port = *port;
}

void read_launcher_services(
    LaunchEnvironment& result,
    const EnvironmentLookup& lookup) {
  result.launcher_hosts_store =
      lookup("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  if (result.rank == 0) {
    if (auto fd = integer(lookup, "DDP_STORE_FD", 0, 1 << 20)) {
      result.store_descriptor = static_cast<int>(*fd);
    }
  }
  // The restart count differs between the nodes of one job (torchrun counts
  // failures per node), so it names the attempt on one node only; between nodes
  // the ranks agree on an attempt while they meet.
  result.attempt = "ddp";
  if (lookup("GROUP_WORLD_SIZE").value_or("") == "1") {
    result.attempt +=
        "/attempt_" + lookup("TORCHELASTIC_RESTART_COUNT").value_or("0");
  }
}

} // namespace

EnvironmentLookup process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value ? std::optional<std::string>(value) : std::nullopt;
  };
}

LaunchEnvironment read_launch_environment(
    const ProcessGroupOptions& options,
    const EnvironmentLookup& lookup) {
  LaunchEnvironment result;
  read_ranks(result, options, lookup);
  if (result.world_size > 1) {
    read_meeting_point(result, options, lookup);
    read_launcher_services(result, lookup);
  }
  return result;
}

ProcessGroupOptions complete_options(
    ProcessGroupOptions options,
    const EnvironmentLookup& lookup) {
  if (options.backend().empty()) {
    options.backend(lookup("DDP_BACKEND").value_or(""));
  }
  const auto& backend = options.backend();
  TORCH_CHECK_VALUE(
      backend.empty() || backend == "auto" || backend == "gloo" ||
          backend == "nccl",
      "backend '",
      backend,
      "' is not known: use gloo, nccl or auto");
  if (!options.device()) {
    if (const auto text = lookup("DDP_DEVICE"); text && *text != "auto") {
      try {
        options.device(c10::Device(*text));
      } catch (const c10::Error&) {
        TORCH_CHECK_VALUE(
            false,
            "DDP_DEVICE='",
            *text,
            "' is not a device: use cpu, cuda, cuda:N or auto");
      }
    }
  }
  TORCH_CHECK_VALUE(
      !options.device() || options.device()->is_cpu() ||
          options.device()->is_cuda(),
      "device ",
      *options.device(),
      " is not served: use cpu or cuda");
  if (!options.timeout()) {
    options.timeout(std::chrono::minutes(10));
    if (const auto text = lookup("DDP_TIMEOUT")) {
      char* end = nullptr;
      const double seconds = std::strtod(text->c_str(), &end);
      TORCH_CHECK_VALUE(
          !text->empty() && *end == '\0' && std::isfinite(seconds) &&
              seconds >= 0.001 && seconds <= 1e9,
          "DDP_TIMEOUT='",
          *text,
          "' is not a number of seconds above 0");
      options.timeout(
          std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)));
    }
  }
  TORCH_CHECK_VALUE(
      options.timeout()->count() > 0,
      "a timeout must be above 0, but is ",
      options.timeout()->count(),
      " ms");
  return options;
}

} // namespace ddp
