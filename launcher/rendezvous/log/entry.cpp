#include <launcher/rendezvous/log/entry.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <limits>

#include <arpa/inet.h>
#include <net/if.h>

#include <common/bounded_json.h>
#include <launcher/rendezvous/node_options.h>

namespace ddp {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(
    NodeInfo,
    id,
    host,
    address,
    ranks,
    wanted_rank,
    hosts_log,
    min_nodes,
    max_nodes,
    max_restarts)

void to_json(json& value, const Plan& plan) {
  json ids = json::array();
  for (const NodeInfo& each : plan.nodes) {
    ids.push_back(each.id); // its kJoin entry had the rest
  }
  value = {
      {"epoch", plan.epoch},
      {"restarts", plan.restarts},
      {"max_restarts", plan.max_restarts},
      {"nodes", ids}};
}

void from_json(const json& value, Plan& plan) {
  value.at("epoch").get_to(plan.epoch);
  value.at("restarts").get_to(plan.restarts);
  value.at("max_restarts").get_to(plan.max_restarts);
  for (const json& each : value.at("nodes")) {
    each.get_to(plan.nodes.emplace_back().id);
  }
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(
    Entry,
    type,
    from,
    sequence,
    epoch,
    node,
    plan,
    about,
    address,
    port,
    code,
    is_consequence,
    text)

namespace {

constexpr int kMostEpochs = 1 << 30;

bool is_in(int64_t number, int64_t least, int64_t most) {
  return number >= least && number <= most;
}

// Names and addresses are written to helpers (one per line), terminals and the
// ranks' environment, so they must not contain other characters.
bool is_word(const std::string& word, size_t most, int (*fits)(int)) {
  return is_in(word.size(), 1, most) &&
      std::all_of(word.begin(), word.end(), [&](unsigned char each) {
           return fits(each) != 0;
         });
}

bool is_id(const std::string& text) {
  return is_word(text, 64, std::isalnum);
}

// An IPv6 address may have an interface: fe80::1%eth0.
bool is_address(const std::string& address) {
  const size_t end = std::min(address.find('%'), address.size());
  const std::string number = address.substr(0, end);
  in6_addr bytes{};
  const bool is_v6 = inet_pton(AF_INET6, number.c_str(), &bytes) == 1;
  const bool is_v4 = inet_pton(AF_INET, number.c_str(), &bytes) == 1;
  return is_word(address, address.size(), std::isgraph) &&
      (end == address.size()
           ? is_v4 || is_v6
           : is_v6 && is_in(address.size() - end, 2, IF_NAMESIZE));
}

bool is_valid(const NodeInfo& node) {
  constexpr size_t longest_name = 255;
  return is_id(node.id) && is_word(node.host, longest_name, std::isgraph) &&
      is_address(node.address) && is_in(node.ranks, 1, kMaxLocalRanks) &&
      is_in(node.wanted_rank, -1, kMaxLocalRanks) &&
      is_in(node.min_nodes, 1, kMostNodes) &&
      is_in(node.max_nodes, 1, kMostNodes) && node.max_restarts >= 0;
}

bool is_valid(const Plan& plan) {
  return is_in(plan.epoch, 1, kMostEpochs) && plan.restarts >= 0 &&
      plan.max_restarts >= 0 && is_in(plan.nodes.size(), 1, kMostNodes) &&
      std::all_of(plan.nodes.begin(), plan.nodes.end(), [](const auto& each) {
           return is_id(each.id);
         });
}

bool is_valid(const Entry& entry) {
  using Type = Entry::Type;
  const auto last = static_cast<int>(Type::kMoves);
  return is_in(static_cast<int>(entry.type), 0, last) && is_id(entry.from) &&
      is_in(entry.epoch, 0, kMostEpochs) &&
      (entry.about.empty() || is_id(entry.about)) &&
      (entry.type != Type::kStart || is_address(entry.address)) &&
      is_in(entry.port, 0, 65535) && is_in(entry.code, 0, 255) &&
      (entry.type != Type::kJoin || is_valid(entry.node)) &&
      (entry.type != Type::kPlan || is_valid(entry.plan));
}

} // namespace

std::string entry_text(const Entry& entry) {
  json value = entry;
  const json empty = Entry();
  for (const auto& each : empty.items()) {
    if (value[each.key()] == each.value()) {
      value.erase(each.key()); // a reader restores it
    }
  }
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<Entry> parse_entry(const std::string& text) {
  try {
    json value = Entry();
    value.update(parse_bounded_json(text, /*fractions=*/false).value());
    auto entry = value.get<Entry>();
    return is_valid(entry) ? std::make_optional(entry) : std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt; // from a node with the token, but another version
  }
}

int Plan::world_size() const {
  return first_rank(static_cast<int>(nodes.size()));
}

int Plan::index_of(const std::string& id) const {
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].id == id) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

int Plan::first_rank(int index) const {
  int rank = 0;
  for (int i = 0; i < index; ++i) {
    rank += nodes[static_cast<size_t>(i)].ranks;
  }
  return rank;
}

std::string hosts_of(const std::vector<NodeInfo>& nodes) {
  std::string text;
  for (const NodeInfo& each : nodes) {
    text += (text.empty() ? "" : ", ") + each.host;
  }
  return text.empty() ? "none" : text;
}

std::vector<NodeInfo> in_order(std::vector<NodeInfo> nodes, const Plan& last) {
  const auto last_place = [&](const NodeInfo& node) {
    const int place = last.index_of(node.id);
    return place < 0 ? std::numeric_limits<int>::max() : place;
  };
  std::stable_sort(
      nodes.begin(), nodes.end(), [&](const NodeInfo& a, const NodeInfo& b) {
        return last_place(a) != last_place(b)
            ? last_place(a) < last_place(b)
            : strverscmp(a.host.c_str(), b.host.c_str()) < 0;
      });
  const auto others = std::stable_partition(
      nodes.begin(), nodes.end(), [](const NodeInfo& each) {
        return each.wanted_rank >= 0;
      });
  std::stable_sort(
      nodes.begin(), others, [](const NodeInfo& a, const NodeInfo& b) {
        return a.wanted_rank < b.wanted_rank;
      });
  // The others fill the places that no node asks for.
  std::vector<NodeInfo> ordered;
  auto asking = nodes.begin();
  auto filling = others;
  while (ordered.size() < nodes.size()) {
    const auto place = static_cast<int>(ordered.size());
    const bool fills = filling != nodes.end() &&
        (asking == others || asking->wanted_rank > place);
    ordered.push_back(fills ? *filling++ : *asking++);
  }
  return ordered;
}

} // namespace ddp
