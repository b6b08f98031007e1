
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include <common/text.h>
#include <launcher/cli/options/option_values.h>
#include <launcher/rendezvous/endpoint.h>

namespace ddp {
namespace {

// The number of ranks in the value's text, from `start` on.
int ranks_of_host(const OptionValue& value, size_t start) {
  const auto ranks = whole_number(value.text.substr(start));
  if (!ranks || *ranks < 1 || *ranks > kMaxLocalRanks) {
    reject_value(value, "1 to " + std::to_string(kMaxLocalRanks) + " ranks");
  }
  return static_cast<int>(*ranks);
}

// Whether the remote shell would take the name for a host, not an option.
bool is_host_name(const std::string& name) {
  return !name.empty() && name[0] != '-' &&
      std::all_of(name.begin(), name.end(), [](unsigned char character) {
        return std::isalnum(character) || std::strchr("-_.:%", character);
      });
}

RemoteHost host_of(const OptionValue& value, const std::string& text) {
  const auto parts = split_host(text);
  if (!parts || !is_host_name(parts->host)) {
    reject_value(value, "HOST[:RANKS] for each host");
  }
  check_host(value, parts->host);
  const std::string& ranks = parts->number;
  return {
      parts->host,
      ranks.empty()
          ? 0
          : ranks_of_host(
                {value.source, text}, text.size() - ranks.size() + 1)};
}

// Reads a line without its comment; does nothing if the line is empty. PBS and
// LSF write a line for each rank: the ranks of a repeated host are added up.
void read_line(
    const OptionValue& place,
    const std::string& line,
    std::vector<RemoteHost>* hosts) {
  std::istringstream words(line);
  std::string word;
  if (!(words >> word)) {
    return;
  }
  RemoteHost host = host_of({place.source, word}, word);
  const std::string slots = "slots=";
  while (words >> word) {
    if (word.compare(0, slots.size(), slots) == 0) {
      host.ranks = ranks_of_host({place.source, word}, slots.size());
    } else if (word.find("max") != 0) { // Open MPI's upper bound
      reject_value({place.source, word}, "HOST:RANKS or HOST slots=RANKS");
    }
  }
  const auto earlier =
      std::find_if(hosts->rbegin(), hosts->rend(), [&](const auto& each) {
        return each.name == host.name;
      });
  if (earlier != hosts->rend()) {
    earlier->ranks = std::max(earlier->ranks, 1) + std::max(host.ranks, 1);
  } else {
    hosts->push_back(std::move(host));
  }
}

} // namespace

std::vector<RemoteHost> hosts_in_list(const OptionValue& value) {
  std::vector<RemoteHost> hosts;
  for (const std::string& each : split_list(value.text)) {
    hosts.push_back(host_of(value, each));
  }
  if (hosts.empty()) {
    reject_value(value, "HOST[:RANKS],...");
  }
  return hosts;
}

std::vector<RemoteHost> hosts_in_file(const OptionValue& value) {
  const std::string name = value.source + " " + value.text;
  std::ifstream stream(value.text);
  if (!stream) {
    usage_error(name + ": " + std::strerror(errno));
  }
  std::vector<RemoteHost> hosts;
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    read_line(
        {name + ", line " + std::to_string(number) + ",", ""},
        line.substr(0, line.find('#')),
        &hosts);
  }
  if (hosts.empty()) {
    usage_error(name + ": contains no host");
  }
  return hosts;
}

void resolve_hosts(const GivenOptions& given, const LaunchOptions& options) {
  const OptionValue* file = find(given, "hostfile");
  const std::string source = (file ? *file : given.at("hosts")).source;
  for (const char* other :
       {"nnodes",
        "node-rank",
        "standalone",
        "master-addr",
        "master-port",
        "rdzv-backend",
        "local-addr"}) {
    if (const OptionValue* found = find(given, other)) {
      usage_error(
          found->source + " and " + source +
          " cannot be combined: the list of hosts determines the nodes and "
          "their addresses");
    }
  }
  if (file && find(given, "hosts")) {
    usage_error("--hosts and --hostfile cannot be combined");
  }
  const auto& hosts = options.remote.hosts;
  const auto loopbacks =
      std::count_if(hosts.begin(), hosts.end(), [](const RemoteHost& each) {
        return is_written_as_loopback(each.name);
      });
  if (loopbacks != 0 && static_cast<size_t>(loopbacks) != hosts.size()) {
    usage_error(
        source +
        ": localhost is a different machine on each host; use a name of this "
        "machine that the others can resolve");
  }
}

} // namespace ddp
