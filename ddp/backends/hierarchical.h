#pragma once

#include <ddp/backends/common/backend.h>

#include <vector>

namespace ddp::backends::hierarchical {

/// The parts of a rank's hierarchical backend.
struct SubBackends {
  /// Connects the ranks of this host, in rank order; null if the host has only
  /// one rank.
  c10::intrusive_ptr<c10d::Backend> intra_node;
  /// Connects the first rank of each host, in the order of `Placement`; null on
  /// the other ranks, and if all ranks share one host.
  c10::intrusive_ptr<c10d::Backend> inter_node;
  /// Connects all ranks.
  c10::intrusive_ptr<c10d::Backend> flat;
};

/// Creates a backend for CPU tensors. Data that is reduced, broadcast or
/// all-gathered is sent to each host once, through the host's first rank. Data
/// between two ranks (messages, gather, scatter, all-to-all) and sparse tensors
/// use `flat`. `hosts` contains each rank's host.
c10::intrusive_ptr<c10d::Backend> create(
    const std::vector<std::string>& hosts,
    int rank,
    const SubBackends& sub_backends);

} // namespace ddp::backends::hierarchical
