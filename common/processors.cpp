#include <common/processors.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>
#include <thread>

#include <sched.h>
#include <unistd.h>

#include <common/cpu_quota.h>
#include <common/text.h>

namespace ddp {
namespace {

bool all_digits(const std::string& text) {
  return !text.empty() && text.size() < 9 &&
      std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return std::isdigit(c);
      });
}

int gpu_devices(const std::string& device_folder) {
  const std::string stem = "nvidia";
  int count = 0;
  std::error_code none; // a missing folder has no devices
  for (const auto& entry :
       std::filesystem::directory_iterator(device_folder, none)) {
    const std::string name = entry.path().filename();
    // CUDA does not count the GPUs that a cgroup hides.
    count += name.rfind(stem, 0) == 0 && all_digits(name.substr(stem.size())) &&
        access(entry.path().c_str(), R_OK | W_OK) == 0;
  }
  return count;
}

double cpus_of_affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0
      ? CPU_COUNT(&set)
      : std::thread::hardware_concurrency();
}

} // namespace

int available_cpus(const std::string& root) {
  // Rounded down: with one more rank, all ranks would wait for their quota.
  return std::max(
      1, static_cast<int>(std::min(cpus_of_affinity(), cpu_quota(root))));
}

bool quota_limits_cpus(const std::string& root) {
  return available_cpus(root) < cpus_of_affinity();
}

int visible_gpus(const char* selection, const std::string& device_folder) {
  const int devices = gpu_devices(device_folder);
  if (selection == nullptr || devices == 0) {
    return devices;
  }
  int count = 0;
  for (const std::string& entry : split_list(selection)) {
    const bool index_there = all_digits(entry) && std::stoi(entry) < devices;
    const bool by_name =
        entry.rfind("GPU-", 0) == 0 || entry.rfind("MIG-", 0) == 0;
    if (!index_there && !by_name) {
      break;
    }
    ++count;
  }
  return count;
}

} // namespace ddp
