#pragma once

#include <ddp/backends/common/backend.h>

#include <vector>

namespace ddp::backends::hierarchical {

/// The backends that a rank's hierarchical backend consists of.
struct SubBackends {
  /// The ranks of this host, in their order; null if this one is alone.
  c10::intrusive_ptr<c10d::Backend> intra_node;
  /// The first rank of each host, in the order of `Placement`; null on the
  /// other ranks, and where there is one host only.
  c10::intrusive_ptr<c10d::Backend> inter_node;
  /// All ranks.
  c10::intrusive_ptr<c10d::Backend> flat;
};

/// A backend for CPU tensors in which what is reduced, broadcast or gathered by
/// all goes to each host once, through its first rank. What goes from one rank
/// to one other (messages, gather, scatter, all-to-all) and sparse tensors take
/// `flat`. `hosts` has each rank's host.
c10::intrusive_ptr<c10d::Backend> create(
    const std::vector<std::string>& hosts,
    int rank,
    const SubBackends& sub_backends);

} // namespace ddp::backends::hierarchical
