#pragma once

#include <string>

namespace ddp {

/// Whether SLURM_STEP_ID is that of a step that srun started: scripts,
/// interactive shells and adopted logins have none, or one beyond all others.
bool is_slurm_step(const std::string& step_id);

/// How many tasks SLURM_STEP_TASKS_PER_NODE, such as "2(x3),1", has for this
/// node; 0 where it does not tell.
int slurm_tasks_on_node(const std::string& tasks_per_node, int node);

} // namespace ddp
