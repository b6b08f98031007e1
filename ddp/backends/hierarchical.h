#pragma once

#include <ddp/backends/common/backend.h>

#include <vector>

namespace ddp::backends::hierarchical {

/// What a rank's backend is composed of.
struct Parts {
  /// The ranks of this host, in their order; null where this one is alone.
  c10::intrusive_ptr<c10d::Backend> local;
  /// The first rank of each host, in the order of `Placement`; null on the
  /// other ranks, and where there is one host only.
  c10::intrusive_ptr<c10d::Backend> between;
  /// All ranks.
  c10::intrusive_ptr<c10d::Backend> direct;
};

/// A backend for CPU tensors in which what is reduced, broadcast or gathered by
/// all goes to each host once, through its first rank. What goes from one rank
/// to one other (messages, gather, scatter, all-to-all) and sparse tensors take
/// `direct`. `hosts` has each rank's host.
c10::intrusive_ptr<c10d::Backend> create(
    const std::vector<std::string>& hosts,
    int rank,
    const Parts& parts);

} // namespace ddp::backends::hierarchical
