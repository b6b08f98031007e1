#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::backends::hierarchical {

/// Which ranks share a host. Hosts are numbered in the order of their first
/// ranks. Places on a host are numbered from 0 in rank order.
struct Placement {
  explicit Placement(const std::vector<std::string>& hosts);

  int64_t hosts() const {
    return static_cast<int64_t>(ranks.size());
  }

  /// The host of each rank.
  std::vector<int> host;
  std::vector<int> place;
  /// The ranks of each host.
  std::vector<std::vector<int>> ranks;
  /// The largest number of ranks on a host.
  int most = 0;
};

} // namespace ddp::backends::hierarchical
