#pragma once

#include <common/heartbeat_page.h>

namespace ddp {

/// Memory that ddprun shares with a rank, after the HeartbeatPage. Through it
/// ddprun asks a rank of `ddp::elastic` to leave its group when the nodes of
/// the job change, and then gives the rank its place in the new group.
/// Initially zero. Each side writes only its own fields.
struct ElasticPage {
  static constexpr uint32_t kVersion = 1;
  static constexpr int kVariablesSize = 3072;

  /// Rank: kVersion while ddprun may request a pause.
  std::atomic<uint32_t> elastic;
  /// Rank: the number of the last pause that it has begun. A paused rank is in
  /// no group.
  std::atomic<uint32_t> paused;
  /// ddprun: the number of requested pauses; a futex.
  std::atomic<uint32_t> asked;
  /// ddprun: the number of the last pause that has ended; a futex.
  std::atomic<uint32_t> over;
  /// ddprun: the time in ms that the rank may take to its next step before its
  /// waits for other ranks end.
  std::atomic<uint32_t> step_patience;
  /// ddprun: the time in ms that a rank whose peers have ended waits for a
  /// request. 0 if no request will come.
  std::atomic<uint32_t> loss_patience;
  /// ddprun, written before `over`: variables such as "RANK=3", each followed
  /// by a newline.
  char variables[kVariablesSize];
};

/// The contents of a rank's shared file. A rank with an older ddp, without
/// ElasticPage, uses only the beginning, and is never elastic.
struct RankPage {
  HeartbeatPage heartbeat;
  ElasticPage elastic;
};

static_assert(
    std::atomic<uint32_t>::is_always_lock_free &&
        sizeof(std::atomic<uint32_t>) == sizeof(uint32_t),
    "the kernel waits for these");

} // namespace ddp
