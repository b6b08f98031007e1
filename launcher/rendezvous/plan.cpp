#include <launcher/rendezvous/plan.h>

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
  const auto place = [&](const NodeInfo& node) {
    const int last_place = last.index_of(node.id);
    constexpr int none = std::numeric_limits<int>::max();
    return std::make_tuple(
        node.wanted_rank < 0 ? none : node.wanted_rank,
        last_place < 0 ? none : last_place);
  };
  std::stable_sort(
      nodes.begin(), nodes.end(), [&](const NodeInfo& a, const NodeInfo& b) {
        return place(a) != place(b) ? place(a) < place(b)
                                    : natural_less(a.host, b.host);
      });
  return nodes;
}

} // namespace ddp
