#include <ddp/environment/environment.h>

#include <common/scheduler/slurm_tasks.h>
#include <common/seconds.h>
#include <ddp/environment/launch_source.h>
#include <ddp/internal/check.h>

#include <c10/util/env.h>

#include <charconv>
#include <cstdlib>
#include <limits>

namespace ddp {
namespace {

using detail::LaunchSource;

bool is_store_endpoint_given(
    const ProcessGroupOptions& options,
    const EnvironmentLookup& lookup) {
  return !options.master_addr().empty() || options.master_port() ||
      lookup("MASTER_ADDR") || lookup("MASTER_PORT");
}

void read_store_endpoint(
    LaunchEnvironment& result,
    const ProcessGroupOptions& options,
    const EnvironmentLookup& lookup) {
  result.master_addr = options.master_addr();
  if (result.master_addr.empty()) {
    result.master_addr = lookup("MASTER_ADDR").value_or("");
  }
  auto port = options.master_port();
  if (!port) {
    port = integer_variable(lookup, "MASTER_PORT", 1, 65535);
  }
  DDP_CHECK_VALUE(
      !result.master_addr.empty(),
      "MASTER_ADDR is not set: this is rank {} of {}; set MASTER_ADDR to the "
      "host of rank 0",
      result.rank,
      result.world_size);
  DDP_CHECK_VALUE(
      port.has_value(),
      "MASTER_PORT is not set: set MASTER_PORT to a free TCP port on {}",
      result.master_addr);
  DDP_CHECK_VALUE(
      *port >= 1 && *port <= 65535,
      "master port {} is not from 1 to 65535",
      *port);
  result.master_port = *port;
}

int64_t required(const EnvironmentLookup& lookup, const char* name) {
  const auto value =
      integer_variable(lookup, name, 0, std::numeric_limits<int64_t>::max());
  DDP_CHECK_VALUE(
      value.has_value(),
      "{} is not set, although SLURM_STEP_ID is: set MASTER_ADDR and "
      "MASTER_PORT to the host of rank 0 and a free port there",
      name);
  return *value;
}

/// Sets the address for the tasks of a Slurm step from Slurm's variables alone:
/// the first host of the step, and a few ports that are derived from the
/// numbers of job and step. Another program may use some of these ports, so
/// rank 0 takes the first free port, and the others look for the key prefix of
/// their job. Throws `c10::ValueError` if a variable is missing.
void rendezvous_by_slurm(
    LaunchEnvironment& environment,
    const EnvironmentLookup& lookup) {
  const auto job = required(lookup, "SLURM_JOB_ID");
  const auto step = required(lookup, "SLURM_STEP_ID");
  const auto hosts = lookup("SLURM_STEP_NODELIST").value_or("");
  DDP_CHECK_VALUE(
      !hosts.empty(),
      "SLURM_STEP_NODELIST is not set: set MASTER_ADDR and MASTER_PORT to the "
      "host of rank 0 and a free port there");
  const bool one_host = lookup("SLURM_STEP_NUM_NODES").value_or("") == "1";
  environment.master_addr = one_host ? "127.0.0.1" : first_slurm_host(hosts);
  environment.master_port = slurm_port(job, step);
  environment.port_count = kSlurmPorts;
  environment.attempt += c10::str("/slurm_", job, "_", step);
}

void read_launcher_services(
    LaunchEnvironment& result,
    const EnvironmentLookup& lookup) {
  // The program may choose another port, at which the launcher serves nothing.
  // The address may differ: a host has several names.
  result.launcher_hosts_store =
      lookup("TORCHELASTIC_USE_AGENT_STORE") == "True" &&
      lookup("MASTER_PORT") == std::to_string(result.master_port);
  // The restart count differs between the nodes of one job (torchrun counts
  // failures per node), so the count names the attempt only on one node. On
  // several nodes, the ranks agree on an attempt in the rendezvous.
  if (lookup("GROUP_WORLD_SIZE").value_or("") == "1") {
    result.attempt +=
        "/attempt_" + lookup("TORCHELASTIC_RESTART_COUNT").value_or("0");
  }
}

void complete_backend(
    ProcessGroupOptions& options,
    const EnvironmentLookup& lookup) {
  if (options.backend().empty()) {
    options.backend(lookup("DDP_BACKEND").value_or(""));
  }
  const auto& backend = options.backend();
  DDP_CHECK_VALUE(
      backend.empty() || backend == "auto" || backend == "gloo" ||
          backend == "nccl" || backend == "mpi" || backend == "shm" ||
          backend == "hierarchical",
      "backend '{}' is unknown: use gloo, nccl, mpi, shm, hierarchical or "
      "auto",
      backend);
}

void complete_device(
    ProcessGroupOptions& options,
    const EnvironmentLookup& lookup) {
  const auto text = lookup("DDP_DEVICE");
  if (!options.device() && text && *text != "auto") {
    try {
      options.device(c10::Device(*text));
    } catch (const c10::Error&) {
      DDP_THROW(
          ValueError,
          "DDP_DEVICE='{}' is not a device: use cpu, cuda, cuda:N or auto",
          *text);
    }
  }
  DDP_CHECK_VALUE(
      !options.device() || options.device()->is_cpu() ||
          options.device()->is_cuda(),
      "device {} is not supported: use cpu or cuda",
      *options.device());
}

/// The program's value, or else a variable's number of seconds.
std::chrono::milliseconds complete_time(
    const std::optional<std::chrono::milliseconds>& given,
    const EnvironmentLookup& lookup,
    const char* variable,
    std::chrono::milliseconds otherwise) {
  DDP_CHECK_VALUE(
      !given || given->count() > 0,
      "a timeout must be above 0, but is {} ms",
      given->count());
  const auto text = given ? std::nullopt : lookup(variable);
  if (!text) {
    return backends::bounded(given.value_or(otherwise));
  }
  const auto* end = text->data() + text->size();
  double seconds = 0;
  const auto [stop, error] = std::from_chars(text->data(), end, seconds);
  DDP_CHECK_VALUE(
      error == std::errc() && stop == end && seconds >= 0.001 && seconds <= 1e9,
      "{}='{}' is not a number of seconds above 0",
      variable,
      *text);
  return backends::bounded(
      std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)));
}

} // namespace

EnvironmentLookup process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    // Unlike getenv(), safe while another thread sets a variable.
    return c10::utils::get_env(name);
  };
}

std::optional<int64_t> integer_variable(
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
  DDP_CHECK_VALUE(
      error == std::errc() && stop == end && value >= min && value <= max,
      "{}='{}' in the environment is not an integer from {} to {}",
      name,
      *text,
      min,
      max);
  return value;
}

LaunchEnvironment read_launch_environment(
    const ProcessGroupOptions& options,
    const EnvironmentLookup& lookup,
    const PmixQuery& pmix) {
  LaunchEnvironment result;
  result.interface = options.interface();
  const auto source = detail::find_launch_source(options, lookup, pmix);
  if (!source) {
    result.note =
        "this process trains alone: no launcher has set RANK and WORLD_SIZE. "
        "ddprun --nproc-per-node N starts N ranks";
    return result;
  }
  result.source = source->launcher;
  result.note = source->note;
  result.rank = source->rank;
  result.world_size = source->world_size;
  result.local_rank = source->local_rank;
  result.attempt = "ddp";
  if (result.world_size > 1) {
    if (source->kind == LaunchSource::Kind::kExplicit ||
        is_store_endpoint_given(options, lookup)) {
      read_store_endpoint(result, options, lookup);
      read_launcher_services(result, lookup);
    } else if (source->kind == LaunchSource::Kind::kSlurm) {
      rendezvous_by_slurm(result, lookup);
    }
  }
  return result;
}

ProcessGroupOptions complete_options(
    ProcessGroupOptions options,
    const EnvironmentLookup& lookup) {
  complete_backend(options, lookup);
  complete_device(options, lookup);
  options.timeout(complete_time(
      options.timeout(), lookup, "DDP_TIMEOUT", std::chrono::minutes(10)));
  options.wait_notice(complete_time(
      options.wait_notice(),
      lookup,
      "DDP_WAIT_NOTICE",
      std::chrono::seconds(10)));
  if (options.interface().empty()) {
    options.interface(lookup("DDP_INTERFACE").value_or(""));
  }
  if (!options.check_replicas()) {
    options.check_replicas(
        integer_variable(lookup, "DDP_CHECK_REPLICAS", 0, 1).value_or(1) == 1);
  }
  if (!options.share_gpus()) {
    options.share_gpus(
        integer_variable(lookup, "DDP_SHARE_GPUS", 0, 1).value_or(0) == 1);
  }
  return options;
}

} // namespace ddp
