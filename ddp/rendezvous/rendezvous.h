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
/// `timeout` without all ranks, each rank that has arrived throws a
/// `c10::Error` that names the missing ranks. Every rank throws
/// `c10::ValueError` if a rank has a fault, if its options or WORLD_SIZE differ
/// from rank 0's, or if two processes have the same rank (detected within a
/// second while both wait). A process that cannot participate passes the rank
/// WORLD_SIZE and a fault. Ranks that have arrived throw immediately; rank 0
/// reports the error to later ranks. If WORLD_SIZE differs, rank 0 throws when
/// all ranks of the larger world have arrived, 0.5 s after the smaller world is
/// complete, or after 5 s. Ranks that arrive even later find no rank 0, or a
/// group formed without them, and also throw. After `wait_notice`, a waiting
/// rank warns: rank 0 about the missing ranks, the other ranks about rank 0. If
/// a process has called this before, rank 0 waits up to 5 s for its port, and
/// another rank that met rank 0's last store waits for the next one.
///
/// A store may outlive an attempt to run the job (torchrun keeps one for all
/// restarts), so its keys may belong to ranks that have ended. Each process
/// draws a number, and adds this number to the numbers of its rank. Rank 0
/// draws the name of the attempt, and answers each number with this name. A
/// rank waits for the answer to its own number, and thus cannot join an old
/// attempt. Two processes with the same rank both get an answer, and the second
/// to join detects the first.
RendezvousResult rendezvous(
    const LaunchEnvironment& environment,
    const RankInfo& self,
    std::chrono::milliseconds timeout,
    std::chrono::milliseconds wait_notice);

} // namespace ddp
