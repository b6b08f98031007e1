#include <common/processors.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <limits>
#include <system_error>
#include <thread>

#include <sched.h>

#include <common/text.h>

namespace ddp {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

double ratio(double quota, double period) {
  return quota > 0 && period > 0 ? quota / period : kUnbounded;
}

// cpu.max is "200000 100000", or "max 100000".
double quota_v2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double quota = 0;
  double period = 0;
  return file >> quota >> period ? ratio(quota, period) : kUnbounded;
}

// A quota of -1 is none.
double quota_v1(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us");
  std::ifstream period_file(folder + "/cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  return quota_file >> quota && period_file >> period ? ratio(quota, period)
                                                      : kUnbounded;
}

// The least quota of a group and all around it. In a container the path may be
// the host's, and only its last folder, the mount itself, is there.
double least_quota(
    const std::string& mount,
    std::string group,
    double (*quota_of)(const std::string&)) {
  double least = kUnbounded;
  for (;;) {
    least = std::min(least, quota_of(mount + group));
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) {
      return least;
    }
    group.erase(slash);
  }
}

bool names_cpu(const std::string& controllers) {
  for (const std::string& name : split_list(controllers)) {
    if (name == "cpu") {
      return true;
    }
  }
  return false;
}

bool all_digits(const std::string& text) {
  return !text.empty() && text.size() < 9 &&
      std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return std::isdigit(c);
      });
}

int gpu_devices(const std::string& device_folder) {
  const std::string stem = "nvidia";
  int count = 0;
  std::error_code none; // a folder that is not there has no devices
  for (const auto& entry :
       std::filesystem::directory_iterator(device_folder, none)) {
    const std::string name = entry.path().filename();
    count += name.rfind(stem, 0) == 0 && all_digits(name.substr(stem.size()));
  }
  return count;
}

} // namespace

double cpu_quota(const std::string& root) {
  double least = kUnbounded;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) { // "4:cpu,cpuacct:/x"
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    const std::string mount = root + "/sys/fs/cgroup";
    if (controllers.empty()) {
      least = std::min(least, least_quota(mount, group, quota_v2));
    } else if (names_cpu(controllers)) {
      for (const std::string& folder : {std::string("cpu"), controllers}) {
        least =
            std::min(least, least_quota(mount + "/" + folder, group, quota_v1));
      }
    }
  }
  return least;
}

int available_cpus(const std::string& root) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const double cpus = sched_getaffinity(0, sizeof set, &set) == 0
      ? CPU_COUNT(&set)
      : std::thread::hardware_concurrency();
  // Rounded down: a rank more would have all of them wait for their quota.
  return std::max(1, static_cast<int>(std::min(cpus, cpu_quota(root))));
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
