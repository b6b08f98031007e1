#pragma once

#include <c10/util/intrusive_ptr.h>
#include <ddp/environment/environment.h>
#include <ddp/rendezvous/rank_info.h>

namespace c10d {
class Store;
}

namespace ddp {

/// The result of a rendezvous, the same on all ranks.
struct RendezvousResult {
  /// A store with the keys of this attempt only.
  c10::intrusive_ptr<c10d::Store> store;
  /// The data of each rank.
  std::vector<RankInfo> members;
};

/// Exchanges the ranks' data over the job's key-value store. Collective. After
/// `timeout` without all ranks, each rank that has arrived throws `c10::Error`
/// that names the missing ranks. Every rank throws `c10::ValueError` if a rank
/// has a fault, has other options or another WORLD_SIZE than rank 0, has the
/// rank of another process (detected within a second while both wait), or has
/// no place (it passes the rank WORLD_SIZE and a fault). Ranks that have
/// arrived throw at once. Rank 0 reports to later ones, and throws when as many
/// ranks have arrived as the larger world has, 0.5 s after the smaller one is
/// complete, or 5 s later. Ranks that arrive after that find no rank 0, or a
/// group formed without them, and throw as well. After `wait_notice`, a waiting
/// rank warns: rank 0 about the missing ranks, the others about rank 0.
///
/// A store may outlive an attempt to run the job (torchrun keeps one for all
/// restarts), so its keys may be those of ranks that have ended. Each process
/// draws a number, and adds it to the numbers of its rank. Rank 0 answers each
/// number with the name of the attempt, which it has drawn. A rank waits for
/// the answer to its own number, so it cannot join an old attempt. Two
/// processes with one rank are both answered, and the second to join detects
/// the first.
RendezvousResult rendezvous(
    const LaunchEnvironment& environment,
    const RankInfo& self,
    std::chrono::milliseconds timeout,
    std::chrono::milliseconds wait_notice);

} // namespace ddp
