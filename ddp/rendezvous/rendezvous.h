#pragma once

#include <c10/util/intrusive_ptr.h>
#include <ddp/environment/environment.h>
#include <ddp/rendezvous/rank_info.h>

namespace c10d {
class Store;
}

namespace ddp {

/// The outcome of a meeting, the same on all ranks.
struct RendezvousResult {
  /// Keys of this attempt alone.
  c10::intrusive_ptr<c10d::Store> store;
  /// By rank.
  std::vector<RankInfo> members;
};

/// Brings the ranks of a job together at its key-value store and exchanges what
/// they tell of themselves. Collective. Throws `c10::Error` naming the missing
/// ranks on each rank that came, once `timeout` has passed since it came, and
/// `c10::ValueError` on every rank where one has a fault or other options than
/// rank 0, or was told another WORLD_SIZE, or has another process's rank (which
/// is seen within a second while both wait), or has no place and comes with the
/// rank WORLD_SIZE and a fault: those that came at once, and rank 0, which
/// tells those that come later, when as many ranks have come as the larger
/// world has, 0.5 s after the smaller one is complete, or 5 s later. Those that
/// come after that find no rank 0, or a group that has formed without them, and
/// throw as well. Who waits for `wait_notice` says for whom: rank 0, or for
/// rank 0.
///
/// A store may outlive an attempt to run the job (torchrun keeps one for all
/// restarts), so its keys may speak of ranks that are dead. Each process draws
/// a number of its own and adds it to those of its rank; rank 0 answers each
/// that it finds with the name of the attempt that it drew itself. An old
/// number is answered in vain, and a rank that waits for the answer to its own
/// cannot end up in an old attempt. Two processes of one rank are both
/// answered, and the second to join finds the first.
RendezvousResult rendezvous(
    const LaunchEnvironment& environment,
    const RankInfo& self,
    std::chrono::milliseconds timeout,
    std::chrono::milliseconds wait_notice);

} // namespace ddp
