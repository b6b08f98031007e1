#pragma once

#include <ddp/backends/common/backend.h>

#include <vector>

namespace ddp::backends::hierarchical {

/// The parts of a rank's hierarchical backend.
struct SubBackends {
  /// The ranks of this host, in rank order; null if there is only one.
  c10::intrusive_ptr<c10d::Backend> intra_node;
  /// The first rank of each host, in the order of `Placement`; null on the
  /// other ranks, and if there is only one host.
  c10::intrusive_ptr<c10d::Backend> inter_node;
  /// All ranks.
  c10::intrusive_ptr<c10d::Backend> flat;
};

/// A backend for CPU tensors. Data that is reduced, broadcast or all-gathered
/// is sent to each host once, through the host's first rank. Data between two
/// ranks (messages, gather, scatter, all-to-all) and sparse tensors use `flat`.
/// `hosts` has each rank's host.
c10::intrusive_ptr<c10d::Backend> create(
    const std::vector<std::string>& hosts,
    int rank,
    const SubBackends& sub_backends);

} // namespace ddp::backends::hierarchical
