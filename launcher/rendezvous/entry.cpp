#include <launcher/rendezvous/entry.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include <nlohmann/json.hpp>

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
    "end",
    "moved"};

// What one node may claim; the sum over nodes stays an int.
constexpr int kMostRanks = 1 << 16;
constexpr size_t kMostNodes = 1 << 14;

json node_json(const NodeInfo& node) {
  return {
      {"id", node.id},
      {"host", node.host},
      {"address", node.address},
      {"ranks", node.ranks},
      {"wanted_rank", node.wanted_rank},
      {"standby_port", node.standby_port},
      {"hosts_log", node.hosts_log},
      {"min_nodes", node.min_nodes},
      {"max_nodes", node.max_nodes},
      {"max_restarts", node.max_restarts},
      {"checks", node.checks}};
}

int int_in(const json& value, const char* name, int least, int most) {
  const auto number = value.at(name).get<int64_t>();
  if (number < least || number > most) {
    throw std::out_of_range(name);
  }
  return static_cast<int>(number);
}

NodeInfo parse_node(const json& value) {
  NodeInfo node;
  value.at("id").get_to(node.id);
  value.at("host").get_to(node.host);
  value.at("address").get_to(node.address);
  node.ranks = int_in(value, "ranks", 1, kMostRanks);
  node.wanted_rank = int_in(value, "wanted_rank", -1, kMostRanks);
  node.standby_port = int_in(value, "standby_port", 0, 65535);
  value.at("hosts_log").get_to(node.hosts_log);
  value.at("min_nodes").get_to(node.min_nodes);
  value.at("max_nodes").get_to(node.max_nodes);
  value.at("max_restarts").get_to(node.max_restarts);
  value.at("checks").get_to(node.checks);
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
  constexpr int most = 1 << 30;
  Plan plan;
  plan.epoch = int_in(value, "epoch", 1, most);
  plan.restarts = int_in(value, "restarts", 0, most);
  plan.max_restarts = int_in(value, "max_restarts", 0, most);
  const json& nodes = value.at("nodes");
  if (nodes.empty() || nodes.size() > kMostNodes) {
    throw std::out_of_range("nodes");
  }
  for (const json& each : nodes) {
    plan.nodes.emplace_back().id = each.get<std::string>();
  }
  return plan;
}

bool tells_node(Entry::Type type) {
  return type == Entry::Type::kJoin || type == Entry::Type::kMoved;
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
  value.at("from").get_to(entry.from);
  value.at("sequence").get_to(entry.sequence);
  entry.epoch = int_in(value, "epoch", 0, 1 << 30);
  value.at("about").get_to(entry.about);
  value.at("address").get_to(entry.address);
  entry.port = int_in(value, "port", 0, 65535);
  entry.code = int_in(value, "code", 0, 255);
  value.at("is_consequence").get_to(entry.is_consequence);
  value.at("text").get_to(entry.text);
  if (tells_node(entry.type)) {
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
  if (tells_node(entry.type)) {
    value["node"] = node_json(entry.node);
  } else if (entry.type == Entry::Type::kPlan) {
    value["plan"] = plan_json(entry.plan);
  }
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<Entry> parse_entry(const std::string& text) {
  try {
    return parse(json::parse(text));
  } catch (const std::exception&) {
    return std::nullopt; // of somebody who knows the token, but another version
  }
}

} // namespace ddp
