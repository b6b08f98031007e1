#include <common/scheduler/slurm_tasks.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include <common/text.h>

namespace ddp {

bool is_slurm_step(const std::string& step_id) {
  // Slurm reserves the highest numbers for other purposes.
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
    if (nodes < 1) {
      return 0;
    }
    if (node < nodes) {
      return tasks;
    }
    node -= nodes;
  }
  return 0;
}

namespace {

using Texts = std::vector<std::string>;

// "008", "009" and "010" for "008-010".
Texts numbers_of(const std::string& range, size_t most) {
  const size_t dash = range.find('-');
  if (dash == std::string::npos) {
    return {range};
  }
  int64_t first = 0;
  int64_t last = -1;
  std::from_chars(range.data(), range.data() + dash, first);
  std::from_chars(range.data() + dash + 1, range.data() + range.size(), last);
  last = std::min(last, std::numeric_limits<int64_t>::max() - 1); // for ++
  Texts numbers;
  for (; first <= last && numbers.size() < most; ++first) {
    const std::string digits = std::to_string(first);
    numbers.push_back(
        std::string(dash - std::min(dash, digits.size()), '0') + digits);
  }
  return numbers;
}

// The first hosts of one entry of a list, such as "rack[1-2]n[3,5]".
Texts expand(const std::string& entry, size_t most) {
  Texts outside; // before each bracket
  Texts inside;
  size_t begin = 0;
  for (;;) {
    const size_t open = entry.find('[', begin);
    const size_t close = entry.find(']', open);
    if (open == std::string::npos || close == std::string::npos) {
      break;
    }
    outside.push_back(entry.substr(begin, open - begin));
    inside.push_back(entry.substr(open + 1, close - open - 1));
    begin = close + 1;
  }
  Texts hosts{entry.substr(begin)};
  for (size_t i = inside.size(); i-- > 0;) {
    const Texts ends = std::exchange(hosts, {});
    for (const std::string& range : split_list(inside[i])) {
      for (const std::string& number : numbers_of(range, most)) {
        for (const std::string& end : ends) {
          if (hosts.size() < most) { // else the products grow exponentially
            hosts.push_back(outside[i] + number + end);
          }
        }
      }
    }
  }
  return hosts;
}

// Splits a list at the commas outside brackets.
Texts entries_of(const std::string& list) {
  Texts entries{""};
  int depth = 0;
  for (char each : list) {
    depth += each == '[' ? 1 : each == ']' ? -1 : 0;
    if (each == ',' && depth == 0) {
      entries.emplace_back();
    } else {
      entries.back() += each;
    }
  }
  return entries;
}

} // namespace

std::vector<std::string> slurm_hosts(const std::string& list, size_t most) {
  Texts hosts;
  for (const std::string& entry : entries_of(list)) {
    for (std::string& host : expand(entry, most)) {
      if (hosts.size() < most && !host.empty()) {
        hosts.push_back(std::move(host));
      }
    }
  }
  return hosts;
}

std::string first_slurm_host(const std::string& list) {
  const Texts hosts = slurm_hosts(list, 1);
  return hosts.empty() ? "" : hosts.front();
}

int slurm_port(int64_t job, int64_t step) {
  // Above Linux's ephemeral ports (32768 to 60999).
  constexpr int64_t first = 61440;
  constexpr int64_t ports = 4096;
  constexpr int64_t bases = ports - kSlurmPorts;
  return static_cast<int>(
      first + (job % bases * kSlurmPorts + step % bases) % bases);
}

} // namespace ddp
