#include <bench/process_cost.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace {

std::vector<std::string> threads_of(pid_t pid) {
  std::vector<std::string> folders;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator(
           "/proc/" + std::to_string(pid) + "/task", gone)) {
    folders.push_back(entry.path());
  }
  return folders;
}

long number_in(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name + ":", 0) == 0) {
      return std::stol(line.substr(name.size() + 1));
    }
  }
  return 0;
}

ProcessCost cost_of(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  ProcessCost cost;
  std::ifstream(folder + "/comm") >> cost.name;
  cost.peak_kib = number_in(folder + "/status", "VmHWM");
  cost.share_kib = number_in(folder + "/smaps_rollup", "Pss");
  for (const std::string& thread : threads_of(pid)) {
    cost.wake_ups += number_in(thread + "/status", "voluntary_ctxt_switches");
  }
  return cost;
}

} // namespace

std::vector<ProcessCost> process_costs(
    pid_t root,
    const std::vector<pid_t>& excluded) {
  if (std::find(excluded.begin(), excluded.end(), root) != excluded.end()) {
    return {};
  }
  std::vector<ProcessCost> costs{cost_of(root)};
  for (const std::string& thread : threads_of(root)) {
    std::ifstream children(thread + "/children");
    for (pid_t child = 0; children >> child;) {
      const auto more = process_costs(child, excluded);
      costs.insert(costs.end(), more.begin(), more.end());
    }
  }
  return costs;
}
