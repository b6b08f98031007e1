#include <common/cpu_quota.h>

#include <algorithm>
#include <fstream>
#include <limits>

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

// A quota of -1 means no limit.
double quota_v1(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us");
  std::ifstream period_file(folder + "/cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  return quota_file >> quota && period_file >> period ? ratio(quota, period)
                                                      : kUnbounded;
}

// The smallest quota of a group and its ancestors. In a container, the path may
// be the host's, and then only the mount itself exists.
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
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      for (const std::string& folder : {std::string("cpu"), controllers}) {
        least =
            std::min(least, least_quota(mount + "/" + folder, group, quota_v1));
      }
    }
  }
  return least;
}

} // namespace ddp
