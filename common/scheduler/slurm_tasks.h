#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ddp {

/// Whether `step_id`, a SLURM_STEP_ID, belongs to a step that srun started.
/// Scripts, interactive shells and adopted logins have no id, or a reserved
/// number above all others.
bool is_slurm_step(const std::string& step_id);

/// The number of tasks on `node` according to SLURM_STEP_TASKS_PER_NODE, such
/// as "2(x3),1"; 0 if unknown.
int slurm_tasks_on_node(const std::string& tasks_per_node, int node);

/// The first hosts, at most `most`, of a list in Slurm's notation: n001, n002
/// and m1 for "n[001-002],m1".
std::vector<std::string> slurm_hosts(const std::string& list, size_t most);

/// The first host of a list in Slurm's notation; empty if the list has none.
std::string first_slurm_host(const std::string& list);

/// The first of `kSlurmPorts` ports, computed from the numbers of the job and
/// the step.
int slurm_port(int64_t job, int64_t step);
constexpr int kSlurmPorts = 8;

} // namespace ddp
