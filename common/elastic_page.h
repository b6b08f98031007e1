#pragma once

#include <common/heartbeat_page.h>

namespace ddp {

/// Memory that ddprun shares with a rank behind its HeartbeatPage. By it ddprun
/// asks a rank of `ddp::elastic` to leave its group when the nodes of the job
/// change, and tells it its place among the next ones. Zero at first. Either
/// side writes its own fields only.
struct ElasticPage {
  static constexpr uint32_t kVersion = 1;
  static constexpr int kVariablesSize = 3072;

  /// The rank: kVersion while it can be asked.
  std::atomic<uint32_t> elastic;
  /// The rank: the last pause that it makes. It is in no group then.
  std::atomic<uint32_t> paused;
  /// ddprun: how many pauses it has asked for; a futex.
  std::atomic<uint32_t> asked;
  /// ddprun: the last pause that is over; a futex.
  std::atomic<uint32_t> over;
  /// ddprun: for how many ms the rank may go on to its next step, before its
  /// waits for other ranks end.
  std::atomic<uint32_t> step_patience;
  /// ddprun: for how many ms a rank whose peers are gone waits to be asked. 0:
  /// it never is.
  std::atomic<uint32_t> loss_patience;
  /// ddprun, before `over`: "RANK=3" and so on, each with a newline at its end.
  char variables[kVariablesSize];
};

/// All that a rank's file has. A rank of a ddp that knows no ElasticPage takes
/// the beginning, and is never elastic.
struct RankPage {
  HeartbeatPage heartbeat;
  ElasticPage elastic;
};

static_assert(
    std::atomic<uint32_t>::is_always_lock_free &&
        sizeof(std::atomic<uint32_t>) == sizeof(uint32_t),
    "the kernel waits for these");

} // namespace ddp
