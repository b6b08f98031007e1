#include <ddp/environment/slurm.h>

#include <common/scheduler/slurm_tasks.h>
#include <ddp/environment/environment_variable.h>

#include <c10/util/Exception.h>

#include <limits>

namespace ddp::detail {
namespace {

int64_t required(const EnvironmentLookup& lookup, const char* name) {
  const auto value =
      integer_variable(lookup, name, 0, std::numeric_limits<int64_t>::max());
  TORCH_CHECK_VALUE(
      value.has_value(),
      name,
      " is not set, although SLURM_STEP_ID is: set MASTER_ADDR and MASTER_PORT "
      "to the host of rank 0 and a free port there");
  return *value;
}

} // namespace

void meet_by_slurm(
    LaunchEnvironment& environment,
    const EnvironmentLookup& lookup) {
  const auto job = required(lookup, "SLURM_JOB_ID");
  const auto step = required(lookup, "SLURM_STEP_ID");
  const auto hosts = lookup("SLURM_STEP_NODELIST").value_or("");
  TORCH_CHECK_VALUE(
      !hosts.empty(),
      "SLURM_STEP_NODELIST is not set: set MASTER_ADDR and MASTER_PORT to the "
      "host of rank 0 and a free port there");
  const bool one_host = lookup("SLURM_STEP_NUM_NODES").value_or("") == "1";
  environment.master_addr = one_host ? "127.0.0.1" : first_slurm_host(hosts);
  environment.master_port = slurm_port(job, step);
  environment.port_count = kSlurmPorts;
  environment.attempt += c10::str("/slurm_", job, "_", step);
}

} // namespace ddp::detail
