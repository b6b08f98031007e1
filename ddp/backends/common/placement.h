#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::backends::hierarchical {

/// Which ranks share hosts. Hosts are numbered by their first ranks, which lead
/// them; places on a host, from 0 on, are in the order of the ranks.
struct Placement {
  explicit Placement(const std::vector<std::string>& hosts);

  int64_t hosts() const {
    return static_cast<int64_t>(ranks.size());
  }

  /// By rank.
  std::vector<int> host;
  std::vector<int> place;
  /// By host.
  std::vector<std::vector<int>> ranks;
  /// The number of ranks on the host that has the most.
  int most = 0;
};

} // namespace ddp::backends::hierarchical
