#include <launcher/affinity/machine.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <system_error>

#include <common/scheduler/launch_error.h>
#include <common/text.h>

namespace ddp {
namespace {

std::optional<std::string> read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  return std::getline(file, line) ? std::optional(line) : std::nullopt;
}

std::vector<int> read_numbers(const std::string& path) {
  const auto line = read_line(path);
  auto numbers = parse_number_list(line.value_or(""));
  if (numbers.empty()) {
    throw LaunchError(
        kExitUsage,
        "--numa-binding needs the list of CPUs, but " + path +
            (line ? " contains '" + *line + "', not a number"
                  : " cannot be read") +
            "; omit the option, or make /sys visible");
  }
  return numbers;
}

// 0 also if Linux reports -1, as for the only node of a machine.
int number_in(const std::string& path) {
  const auto numbers = parse_number_list(read_line(path).value_or(""));
  return numbers.empty() ? 0 : numbers[0];
}

int lowest_in(const std::string& path) {
  const auto numbers = read_numbers(path);
  return *std::min_element(numbers.begin(), numbers.end());
}

std::string cpu_folder(int cpu, const std::string& root) {
  return root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
}

// Sorted; empty if the folder cannot be read.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<int> number_after(
    const std::string& stem,
    const std::string& name) {
  if (name.rfind(stem, 0) != 0) {
    return std::nullopt;
  }
  const auto numbers = parse_number_list(name.substr(stem.size()));
  return numbers.size() == 1 ? std::optional(numbers[0]) : std::nullopt;
}

// Empty on a kernel without NUMA.
std::map<int, int> nodes_of_cpus(const std::string& root) {
  const std::string folder = root + "/sys/devices/system/node";
  std::map<int, int> nodes;
  for (const std::string& name : names_in(folder)) {
    if (const auto node = number_after("node", name)) {
      const auto cpus = read_line(folder + "/" + name + "/cpulist");
      for (const int cpu : parse_number_list(cpus.value_or(""))) {
        nodes[cpu] = *node;
      }
    }
  }
  return nodes;
}

std::vector<Gpu> read_gpus(const std::string& root) {
  const std::string folder = root + "/proc/driver/nvidia/gpus";
  std::vector<Gpu> gpus;
  for (const std::string& address : names_in(folder)) {
    Gpu gpu;
    std::string device = root + "/dev/nvidia";
    std::ifstream information(folder + "/" + address + "/information");
    for (std::string line; std::getline(information, line);) {
      const size_t start = line.find("GPU-");
      if (line.rfind("GPU UUID:", 0) == 0 && start != std::string::npos) {
        gpu.uuid = line.substr(start);
      }
      if (line.rfind("Device Minor:", 0) == 0) {
        device += std::to_string(std::atoi(line.c_str() + line.find(':') + 1));
      }
    }
    // CUDA does not count the GPUs that a cgroup hides, as Slurm's does.
    if (access(device.c_str(), R_OK | W_OK) != 0 && errno != ENOENT) {
      continue;
    }
    gpu.node =
        number_in(root + "/sys/bus/pci/devices/" + address + "/numa_node");
    gpus.push_back(gpu);
  }
  return gpus;
}

} // namespace

Machine read_machine(const cpu_set_t& allowed, const std::string& root) {
  Machine machine;
  const auto nodes = nodes_of_cpus(root);
  for (int id = 0; id < CPU_SETSIZE; ++id) {
    if (!CPU_ISSET(id, &allowed)) {
      continue;
    }
    const std::string topology = cpu_folder(id, root) + "/topology/";
    Cpu cpu;
    cpu.id = id;
    cpu.core = lowest_in(topology + "thread_siblings_list");
    cpu.socket = number_in(topology + "physical_package_id");
    const auto node = nodes.find(id);
    cpu.node = node == nodes.end() ? 0 : node->second;
    machine.cpus.push_back(cpu);
  }
  if (machine.cpus.empty()) {
    throw LaunchError(kExitUsage, "--numa-binding: no CPU is available");
  }
  machine.gpus = read_gpus(root);
  return machine;
}

int last_level_cache(int cpu, const std::string& root) {
  const std::string folder = cpu_folder(cpu, root) + "/cache";
  std::string last; // the names are in the order of levels
  for (const std::string& name : names_in(folder)) {
    const std::string cache = folder + "/" + name;
    const auto type = read_line(cache + "/type").value_or("");
    if (type == "Unified" || type == "Data") {
      last = cache;
    }
  }
  if (last.empty()) {
    throw LaunchError(
        kExitUsage,
        "--numa-binding core-complex needs the CPUs that share a cache, but " +
            folder + " does not list them; use --numa-binding exclusive");
  }
  return lowest_in(last + "/shared_cpu_list");
}

} // namespace ddp
