#include <ddp/backends/common/placement.h>

#include <algorithm>
#include <map>

namespace ddp::backends::hierarchical {

Placement::Placement(const std::vector<std::string>& hosts) {
  std::map<std::string, int> numbers;
  for (const auto& name : hosts) {
    const auto number =
        numbers.emplace(name, static_cast<int>(numbers.size())).first->second;
    ranks.resize(numbers.size());
    auto& here = ranks[number];
    const auto rank = static_cast<int>(host.size());
    host.push_back(number);
    place.push_back(static_cast<int>(here.size()));
    here.push_back(rank);
    most = std::max(most, static_cast<int>(here.size()));
  }
}

} // namespace ddp::backends::hierarchical
