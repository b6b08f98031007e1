#include <launcher/rendezvous/log/entry.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <limits>
#include <stdexcept>

#include <arpa/inet.h>
#include <net/if.h>

#include <common/bounded_json.h>

namespace ddp {
namespace {

using nlohmann::json;

// In the order of Entry::Type.
const char* const kTypes[] = {
    "coming",
    "join",
    "leave",
    "lost",
    "plan",
    "ready",
    "start",
    "failed",
    "stopped",
    "finished",
    "regroup",
    "end"};

// What one node may claim; the sum over nodes stays an int.
constexpr int kMaxRanksOfNode = 1 << 16;
constexpr int kMostNodes = 1 << 14;
constexpr int kMostEpochs = 1 << 30;
constexpr int kMostRestarts = std::numeric_limits<int>::max();
constexpr size_t kLongestName = 255; // of a host

json node_json(const NodeInfo& node) {
  return {
      {"id", node.id},
      {"host", node.host},
      {"address", node.address},
      {"ranks", node.ranks},
      {"wanted_rank", node.wanted_rank},
      {"hosts_log", node.hosts_log},
      {"min_nodes", node.min_nodes},
      {"max_nodes", node.max_nodes},
      {"max_restarts", node.max_restarts}};
}

int int_in(const json& value, const char* name, int least, int most) {
  const auto number = value.at(name).get<int64_t>();
  if (number < least || number > most) {
    throw std::out_of_range(name);
  }
  return static_cast<int>(number);
}

// Names and addresses are written, one a line, to helpers, terminals and the
// ranks' environment: nothing else may be in them.
std::string word_in(const json& value, size_t most, int (*fits)(int)) {
  auto word = value.get<std::string>();
  if (word.empty() || word.size() > most ||
      !std::all_of(word.begin(), word.end(), [&](unsigned char each) {
        return fits(each) != 0;
      })) {
    throw std::out_of_range("word");
  }
  return word;
}

std::string id_in(const json& value) {
  return word_in(value, 64, std::isalnum);
}

std::string host_in(const json& value) {
  return word_in(value, kLongestName, std::isgraph);
}

// Of IPv6 also with its interface: fe80::1%eth0.
std::string address_in(const json& value) {
  auto address = value.get<std::string>();
  const std::string number = address.substr(0, address.find('%'));
  in6_addr bytes{};
  const bool is_v6 = inet_pton(AF_INET6, number.c_str(), &bytes) == 1;
  const bool is_v4 = inet_pton(AF_INET, number.c_str(), &bytes) == 1;
  if (address.find('\0') != std::string::npos || (!is_v6 && !is_v4)) {
    throw std::out_of_range("address");
  }
  if (number.size() < address.size()) {
    const std::string interface = address.substr(number.size() + 1);
    if (is_v4 || interface.size() >= IF_NAMESIZE) {
      throw std::out_of_range("address");
    }
    host_in(interface);
  }
  return address;
}

NodeInfo parse_node(const json& value) {
  NodeInfo node;
  node.id = id_in(value.at("id"));
  node.host = host_in(value.at("host"));
  node.address = address_in(value.at("address"));
  node.ranks = int_in(value, "ranks", 1, kMaxRanksOfNode);
  node.wanted_rank = int_in(value, "wanted_rank", -1, kMaxRanksOfNode);
  value.at("hosts_log").get_to(node.hosts_log);
  node.min_nodes = int_in(value, "min_nodes", 1, kMostNodes);
  node.max_nodes = int_in(value, "max_nodes", 1, kMostNodes);
  node.max_restarts = int_in(value, "max_restarts", 0, kMostRestarts);
  return node;
}

json plan_json(const Plan& plan) {
  json nodes = json::array();
  for (const NodeInfo& each : plan.nodes) {
    nodes.push_back(each.id); // all else was said when it joined
  }
  return {
      {"epoch", plan.epoch},
      {"restarts", plan.restarts},
      {"max_restarts", plan.max_restarts},
      {"nodes", nodes}};
}

Plan parse_plan(const json& value) {
  Plan plan;
  plan.epoch = int_in(value, "epoch", 1, kMostEpochs);
  plan.restarts = int_in(value, "restarts", 0, kMostRestarts);
  plan.max_restarts = int_in(value, "max_restarts", 0, kMostRestarts);
  const json& nodes = value.at("nodes");
  if (nodes.empty() || nodes.size() > size_t{kMostNodes}) {
    throw std::out_of_range("nodes");
  }
  for (const json& each : nodes) {
    plan.nodes.emplace_back().id = id_in(each);
  }
  return plan;
}

Entry parse(const json& value) {
  Entry entry;
  const auto type = value.at("type").get<std::string>();
  const auto* const found =
      std::find(std::begin(kTypes), std::end(kTypes), type);
  if (found == std::end(kTypes)) {
    throw std::out_of_range("type");
  }
  entry.type = static_cast<Entry::Type>(found - std::begin(kTypes));
  entry.from = id_in(value.at("from"));
  value.at("sequence").get_to(entry.sequence);
  entry.epoch = int_in(value, "epoch", 0, kMostEpochs);
  if (value.at("about") != "") {
    entry.about = id_in(value.at("about"));
  }
  if (entry.type == Entry::Type::kStart) {
    entry.address = address_in(value.at("address"));
  }
  entry.port = int_in(value, "port", 0, 65535);
  entry.code = int_in(value, "code", 0, 255);
  value.at("is_consequence").get_to(entry.is_consequence);
  value.at("text").get_to(entry.text);
  if (entry.type == Entry::Type::kJoin) {
    entry.node = parse_node(value.at("node"));
  } else if (entry.type == Entry::Type::kPlan) {
    entry.plan = parse_plan(value.at("plan"));
  }
  return entry;
}

} // namespace

const char* name_of(Entry::Type type) {
  return kTypes[static_cast<size_t>(type)];
}

std::string entry_text(const Entry& entry) {
  json value = {
      {"type", name_of(entry.type)},
      {"from", entry.from},
      {"sequence", entry.sequence},
      {"epoch", entry.epoch},
      {"about", entry.about},
      {"address", entry.address},
      {"port", entry.port},
      {"code", entry.code},
      {"is_consequence", entry.is_consequence},
      {"text", entry.text}};
  if (entry.type == Entry::Type::kJoin) {
    value["node"] = node_json(entry.node);
  } else if (entry.type == Entry::Type::kPlan) {
    value["plan"] = plan_json(entry.plan);
  }
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<Entry> parse_entry(const std::string& text) {
  try {
    const auto value = parse_bounded_json(text);
    return value ? std::make_optional(parse(*value)) : std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt; // of somebody who knows the token, but another version
  }
}

} // namespace ddp
