#include <launcher/cli/outer_nodes.h>

#include <cstdint>
#include <cstdlib>

#include <common/scheduler/outer_launcher.h>
#include <common/scheduler/slurm_tasks.h>
#include <launcher/rendezvous/node_options.h>

namespace ddp {
namespace {

using Kind = OuterLauncher::Kind;

int64_t number_of(const EnvironmentLookup& lookup, const char* name) {
  return std::atoll(lookup(name).value_or("").c_str());
}

void meet_by_slurm(const EnvironmentLookup& lookup, OuterNodes* nodes) {
  const std::string job = lookup("SLURM_JOB_ID").value_or("");
  const std::string step = lookup("SLURM_STEP_ID").value_or("");
  const auto hosts = lookup("SLURM_STEP_NODELIST");
  nodes->rank = static_cast<int>(number_of(lookup, "SLURM_NODEID"));
  nodes->host = first_slurm_host(
      hosts ? *hosts : lookup("SLURM_JOB_NODELIST").value_or(""));
  nodes->port = slurm_port(
      number_of(lookup, "SLURM_JOB_ID"), number_of(lookup, "SLURM_STEP_ID"));
  nodes->run_id = job + "." + step;
}

void meet_by_variables(const EnvironmentLookup& lookup, OuterNodes* nodes) {
  nodes->host = lookup("MASTER_ADDR").value_or("");
  const auto port = static_cast<int>(number_of(lookup, "MASTER_PORT"));
  nodes->port = port > 0 && port < 65536 ? port : kMasterPort;
  nodes->run_id = lookup("PMIX_NAMESPACE").value_or("");
}

} // namespace

std::optional<OuterNodes> find_outer_nodes(const EnvironmentLookup& lookup) {
  const auto launcher = find_outer_launcher(lookup);
  const bool starts_nodes = launcher && launcher->kind != Kind::kSlurmScript &&
      launcher->tasks != 1 && is_once_per_node(*launcher);
  if (!starts_nodes) {
    return std::nullopt;
  }
  OuterNodes nodes;
  nodes.launcher = launcher->name;
  nodes.nodes = launcher->tasks;
  nodes.rank = launcher->rank;
  if (launcher->kind == Kind::kSlurm) {
    meet_by_slurm(lookup, &nodes);
  } else {
    meet_by_variables(lookup, &nodes);
  }
  return nodes;
}

} // namespace ddp
