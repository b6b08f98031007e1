#include <launcher/rendezvous/log/plan.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <tuple>

namespace ddp {
namespace {

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

// The digits at `at` without leading zeros.
std::string number_at(const std::string& text, size_t* at) {
  size_t end = *at;
  while (end < text.size() && is_digit(text[end])) {
    ++end;
  }
  const size_t start = std::min(text.find_first_not_of('0', *at), end);
  *at = end;
  return text.substr(start, end - start);
}

} // namespace

bool natural_less(const std::string& a, const std::string& b) {
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const std::string left = number_at(a, &i);
      const std::string right = number_at(b, &j);
      if (left != right) {
        return std::make_tuple(left.size(), left) <
            std::make_tuple(right.size(), right);
      }
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i;
      ++j;
    }
  }
  return a.size() - i < b.size() - j;
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
        return last_place(a) != last_place(b) ? last_place(a) < last_place(b)
                                              : natural_less(a.host, b.host);
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
