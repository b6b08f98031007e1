#include <launcher/rendezvous/log/plan.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace ddp {

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
  // The others fill the places that nobody asks for.
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
