#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ddp {

/// Whether SLURM_STEP_ID is that of a step that srun started: scripts,
/// interactive shells and adopted logins have none, or one beyond all others.
bool is_slurm_step(const std::string& step_id);

/// How many tasks SLURM_STEP_TASKS_PER_NODE, such as "2(x3),1", has for this
/// node; 0 where it does not tell.
int slurm_tasks_on_node(const std::string& tasks_per_node, int node);

/// The hosts of a list as Slurm writes it, `most` of them: n001, n002 and m1 of
/// "n[001-002],m1".
std::vector<std::string> slurm_hosts(const std::string& list, size_t most);

/// The first of them; empty if there is none.
std::string first_slurm_host(const std::string& list);

/// The first of a few ports (`kSlurmPorts`) that follow from the numbers of job
/// and step.
int slurm_port(int64_t job, int64_t step);
constexpr int kSlurmPorts = 8;

} // namespace ddp
