#include <launcher/cli/options/option_values.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <common/file_descriptor.h>
#include <common/processors.h>
#include <common/scheduler/launch_error.h>
#include <common/text.h>
#include <launcher/remote/launcher_link.h>

namespace ddp {
namespace {

constexpr int kMostPort = 65535;

// Includes an empty last entry, which is a mistake to report.
std::vector<std::string> entries_of(const std::string& text) {
  std::vector<std::string> entries = split_list(text);
  if (!text.empty() && text.back() == ',') {
    entries.emplace_back();
  }
  return entries;
}

// "4" or "4-7"; none also if all ranges so far, of which `left` counts down,
// have more ranks than a node.
std::optional<std::pair<int, int>> rank_range(
    const std::string& text,
    int64_t* left) {
  const size_t dash = text.find('-');
  const auto first = whole_number(text.substr(0, dash));
  const auto last =
      dash == std::string::npos ? first : whole_number(text.substr(dash + 1));
  if (!first || !last || *first < 0 || *last < *first ||
      *last >= kMaxLocalRanks || (*left -= *last - *first + 1) < 0) {
    return std::nullopt;
  }
  return std::make_pair(static_cast<int>(*first), static_cast<int>(*last));
}

template <typename Choice>
Choice choice_of(
    const OptionValue& value,
    std::initializer_list<std::pair<const char*, Choice>> known) {
  std::string names;
  for (const auto& [name, choice] : known) {
    if (value.text == name) {
      return choice;
    }
    names += (names.empty() ? "one of " : ", ") + std::string(name);
  }
  reject_value(value, names);
}

// Reads the descriptor that was checked, since another file may be at the path
// by then.
std::string first_line_of(const std::string& name, const std::string& path) {
  if (path == "-") {
    return read_first_line(STDIN_FILENO);
  }
  const FileDescriptor file(
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0) {
    usage_error(name + ": " + std::strerror(errno));
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    usage_error(name + ": other users can access it; run chmod 600 " + path);
  }
  if (status.st_uid != geteuid() && status.st_uid != 0) {
    usage_error(
        name + ": it belongs to user " + std::to_string(status.st_uid) +
        ", who can access it; run chown " + std::to_string(geteuid()) + " " +
        path);
  }
  return read_first_line(file.get());
}

std::optional<int> stream_number(const std::string& text) {
  const bool known = text.size() == 1 && text[0] >= '0' && text[0] <= '3';
  return known ? std::optional<int>(text[0] - '0') : std::nullopt;
}

} // namespace

void usage_error(const std::string& message) {
  throw LaunchError(kExitUsage, message + " (see ddprun --help)");
}

void reject_value(const OptionValue& value, const std::string& expected) {
  usage_error(value.source + " is '" + value.text + "', expected " + expected);
}

std::optional<int64_t> whole_number(const std::string& text) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  const bool whole = result.ec == std::errc() && result.ptr == end;
  return whole ? std::optional<int64_t>(number) : std::nullopt;
}

int int_of(const OptionValue& value, int least, int most) {
  const auto number = whole_number(value.text);
  if (!number || *number < least || *number > most) {
    const bool bounded = most < std::numeric_limits<int>::max();
    reject_value(
        value,
        bounded ? "a whole number from " + std::to_string(least) + " to " +
                std::to_string(most)
                : "a whole number, at least " + std::to_string(least));
  }
  return static_cast<int>(*number);
}

std::chrono::milliseconds seconds_of(const OptionValue& value) {
  constexpr double most = 1e9;
  char* end = nullptr;
  const double seconds = std::strtod(value.text.c_str(), &end);
  const bool whole = !value.text.empty() && *end == '\0';
  if (!whole || !(seconds >= 0 && seconds <= most)) {
    reject_value(value, "a number of seconds, 0 or more");
  }
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

int rank_count(
    const OptionValue& value,
    const std::optional<std::string>& devices,
    const std::string& root) {
  const std::string& text = value.text;
  if (text == "gpu" || text == "auto") {
    const int gpus =
        visible_gpus(devices ? devices->c_str() : nullptr, root + "/dev");
    if (gpus > 0) {
      return gpus;
    }
  }
  if (text == "gpu") {
    usage_error(
        value.source +
        " gpu: no GPU is visible (/dev/nvidia*, CUDA_VISIBLE_DEVICES); "
        "try --nproc-per-node cpu");
  }
  if (text == "cpu" || text == "auto") {
    return available_cpus(root);
  }
  if (!whole_number(text)) {
    reject_value(value, "a positive number, cpu, gpu or auto");
  }
  return int_of(value, 1, kMaxLocalRanks);
}

std::optional<HostText> split_host(const std::string& text) {
  if (text.empty() || text[0] != '[') {
    const bool has_number = std::count(text.begin(), text.end(), ':') == 1;
    const size_t colon = has_number ? text.find(':') : text.size();
    return HostText{text.substr(0, colon), text.substr(colon)};
  }
  const size_t close = text.find(']');
  if (close == std::string::npos ||
      (close + 1 < text.size() && text[close + 1] != ':')) {
    return std::nullopt;
  }
  return HostText{text.substr(1, close - 1), text.substr(close + 1)};
}

SocketAddress endpoint_of(const OptionValue& value, int default_port) {
  if (value.text.find('/') != std::string::npos) {
    reject_value(value, "HOST[:PORT], not a URL");
  }
  const auto parts = split_host(value.text);
  if (!parts) {
    reject_value(value, "an IPv6 address as in [::1]:29400");
  }
  const std::string& port = parts->number;
  check_host(value, parts->host);
  return {
      parts->host,
      port.empty() ? default_port
                   : int_of({value.source, port.substr(1)}, 0, kMostPort)};
}

void check_host(const OptionValue& value, const std::string& host) {
  if (host.empty()) {
    reject_value(value, "a host name or an address");
  }
  if (host == "0.0.0.0" || host == "::") {
    reject_value(value, "an address that ranks can connect to");
  }
}

std::pair<int, int> port_range_of(const OptionValue& value) {
  const size_t dash = value.text.find('-');
  if (dash == std::string::npos) {
    reject_value(value, "A-B, the first and the last port");
  }
  const std::pair<int, int> range{
      int_of({value.source, value.text.substr(0, dash)}, 1, kMostPort),
      int_of({value.source, value.text.substr(dash + 1)}, 1, kMostPort)};
  if (range.first > range.second) {
    reject_value(value, "A-B with A not above B");
  }
  return range;
}

std::string token_of(const OptionValue& value) {
  const std::string name = value.source + " " + value.text;
  const std::string line = first_line_of(name, value.text);
  constexpr const char* spaces = " \t\r";
  const size_t first = line.find_first_not_of(spaces);
  if (first == std::string::npos) {
    usage_error(name + ": its first line is empty, expected the job's secret");
  }
  return line.substr(first, line.find_last_not_of(spaces) - first + 1);
}

StreamChoice streams_of(const OptionValue& value) {
  StreamChoice choice;
  if (const auto all = stream_number(value.text)) {
    choice.all = *all;
    return choice;
  }
  int64_t left = kMaxLocalRanks;
  for (const std::string& entry : entries_of(value.text)) {
    const size_t colon = entry.find(':');
    const auto range = rank_range(entry.substr(0, colon), &left);
    const auto streams = colon == std::string::npos
        ? std::nullopt
        : stream_number(entry.substr(colon + 1));
    if (!range || !streams) {
      choice.ranks.clear();
      break;
    }
    for (int rank = range->first; rank <= range->second; ++rank) {
      choice.ranks[rank] = *streams;
    }
  }
  if (choice.ranks.empty()) {
    reject_value(
        value,
        "0 (none), 1 (standard output), 2 (standard error) or 3 (both), or "
        "these for local ranks as in 0:1,4-7:3");
  }
  return choice;
}

std::set<int> ranks_of(const OptionValue& value) {
  std::set<int> ranks;
  int64_t left = kMaxLocalRanks;
  for (const std::string& entry : entries_of(value.text)) {
    const auto range = rank_range(entry, &left);
    if (!range) {
      reject_value(value, "local ranks such as 0,1,4-7");
    }
    for (int rank = range->first; rank <= range->second; ++rank) {
      ranks.insert(rank);
    }
  }
  return ranks;
}

std::vector<std::string> texts_of(const OptionValue& value) {
  std::vector<std::string> texts(1);
  const std::string& text = value.text;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      texts.back() += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == ',') {
      texts.back() += text[i++];
    } else {
      texts.emplace_back();
    }
  }
  // An empty text is part of every line.
  texts.erase(std::remove(texts.begin(), texts.end(), ""), texts.end());
  return texts;
}

std::pair<std::string, std::string> variable_of(const OptionValue& value) {
  const size_t sign = value.text.find('=');
  if (sign == std::string::npos || sign == 0) {
    reject_value(
        value,
        "NAME=VALUE; ranks inherit ddprun's variables without this option");
  }
  std::string name = value.text.substr(0, sign);
  for (const char* own : {"RANK", "LOCAL_RANK", "ROLE_RANK"}) {
    if (name == own) {
      reject_value(value, "another name: each rank has its own " + name);
    }
  }
  const std::pair<const char*, const char*> options[] = {
      {"GROUP_RANK", "--node-rank"},
      {"GROUP_WORLD_SIZE", "--nnodes"},
      {"LOCAL_WORLD_SIZE", "--nproc-per-node"},
      {"MASTER_ADDR", "--master-addr"},
      {"MASTER_PORT", "--master-port"},
      {"ROLE_WORLD_SIZE", "--nproc-per-node"},
      {"WORLD_SIZE", "--nproc-per-node"}};
  for (const auto& [own, option] : options) {
    if (name == own) {
      reject_value(
          value, "another name: ddprun sets " + name + ", see " + option);
    }
  }
  return {std::move(name), value.text.substr(sign + 1)};
}

Binding binding_of(const OptionValue& value) {
  return choice_of<Binding>(
      value,
      {{"none", Binding::kNone},
       {"node", Binding::kNode},
       {"socket", Binding::kSocket},
       {"exclusive", Binding::kExclusive},
       {"core-complex", Binding::kCoreComplex},
       {"share", Binding::kShare}});
}

OutputMode output_mode_of(const OptionValue& value) {
  return choice_of<OutputMode>(
      value,
      {{"lines", OutputMode::kLines},
       {"raw", OutputMode::kRaw},
       {"pty", OutputMode::kPty}});
}

} // namespace ddp
