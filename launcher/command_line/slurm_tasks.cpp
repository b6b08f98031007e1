#include <launcher/command_line/slurm_tasks.h>
#include <launcher/wording.h>

#include <charconv>
#include <cstdint>

namespace ddp {

bool is_slurm_step(const std::string& step_id) {
  // Slurm gives the highest numbers to what is no step.
  constexpr int64_t first_special = 4294967280;
  int64_t id = -1;
  std::from_chars(step_id.data(), step_id.data() + step_id.size(), id);
  return id >= 0 && id < first_special;
}

int slurm_tasks_on_node(const std::string& tasks_per_node, int node) {
  for (const std::string& entry : split_list(tasks_per_node)) {
    int tasks = 0;
    const char* end = entry.data() + entry.size();
    const char* at = std::from_chars(entry.data(), end, tasks).ptr;
    int nodes = 1;
    if (end - at > 2 && at[0] == '(' && at[1] == 'x') {
      std::from_chars(at + 2, end, nodes);
    }
    if (node < nodes) {
      return tasks;
    }
    node -= nodes;
  }
  return 0;
}

} // namespace ddp
