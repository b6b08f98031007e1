// The ends of ranks, without processes.
#include <tests/support/catch_plain.h>

#include <common/processes/supervisor.h>
#include <launcher/agent/progress_watch.h>
#include <launcher/processes.h>

namespace ddp::test::supervisor_test {

using namespace std::chrono_literals;
using Signals = Supervisor::Signals;
using Phase = RankState::Phase;

constexpr int kExit1 = 1 << 8; // as from waitpid
const Supervisor::Time kStart{};
const Signals kStop = {SIGTERM, SIGCONT};
const Signals kKill = {SIGKILL};

Supervisor job_of(int ranks) {
  return Supervisor(ranks, 30s, kStart);
}

TEST_CASE("a rank's life", "[unit]") {
  RankState rank;
  CHECK(rank.phase() == Phase::kRunning);
  rank.asked_to_stop();
  CHECK(rank.phase() == Phase::kStopping);
  rank.killed();
  CHECK(rank.phase() == Phase::kKilled);
  rank.asked_to_stop();
  CHECK(rank.phase() == Phase::kKilled);
  rank.ended(SIGKILL, 3s);
  CHECK_FALSE(rank.alive());
  CHECK(rank.last_phase() == Phase::kKilled);
  CHECK_FALSE(rank.failed()); // ddprun ended it
  CHECK(rank.lifetime() == 3s);
  rank.ended(kExit1, 4s);
  CHECK(rank.wait_status() == SIGKILL);

  RankState other;
  other.ended(kExit1, 1s);
  CHECK(other.failed());
  RankState good;
  good.ended(0, 1s);
  CHECK_FALSE(good.failed());
}

TEST_CASE("a failure stops the others, and kills them in the end", "[unit]") {
  Supervisor job = job_of(3);
  CHECK(job.rank_ended(1, kExit1, false, kStart + 1s) == kStop);
  CHECK(job.reason() == StopReason::kFailure);
  CHECK(job.deadline() == kStart + 31s);
  CHECK(job.rank_ended(0, SIGTERM, false, kStart + 2s) == Signals{});
  CHECK(job.deadline_passed(kStart + 31s) == kKill);
  CHECK_FALSE(job.deadline());
  CHECK(job.rank_ended(2, SIGKILL, false, kStart + 31s) == Signals{});
  CHECK(job.ended() == std::vector<int>{1, 0, 2});
  CHECK(job.ranks()[0].last_phase() == Phase::kStopping);
  CHECK(job.ranks()[2].last_phase() == Phase::kKilled);
}

TEST_CASE("a victim's end gives the origin time to end", "[unit]") {
  Supervisor job = job_of(3);
  CHECK(job.rank_ended(0, kExit1, true, kStart + 1s) == Signals{});
  CHECK(job.deadline() == kStart + 1s + Supervisor::kSettleTime);
  SECTION("which it does") {
    CHECK(job.rank_ended(2, kExit1, false, kStart + 1100ms) == kStop);
    CHECK(job.ranks()[2].failed());
    CHECK(job.deadline() == kStart + 31100ms);
  }
  SECTION("which another victim does not prolong") {
    CHECK(job.rank_ended(2, kExit1, true, kStart + 1100ms) == Signals{});
    CHECK(job.deadline() == kStart + 1s + Supervisor::kSettleTime);
  }
  SECTION("which it does not") {
    CHECK(job.deadline_passed(kStart + 2s) == kStop);
    CHECK(job.deadline() == kStart + 32s);
  }
  SECTION("in which a signal can come") {
    CHECK(
        job.asked_to_end(SIGINT, kStart + 1100ms) == Signals{SIGINT, SIGCONT});
    CHECK(job.reason() == StopReason::kFailure);
  }
}

TEST_CASE("what ends after a signal is no failure", "[unit]") {
  Supervisor job = job_of(2);
  job.asked_to_end(SIGINT, kStart);
  CHECK(job.rank_ended(0, kExit1, false, kStart + 2s) == Signals{});
  CHECK_FALSE(job.ranks()[0].failed());
}

TEST_CASE("a signal while ranks are stopped leaves them their time", "[unit]") {
  Supervisor job = job_of(2);
  CHECK(job.rank_ended(0, kExit1, false, kStart) == kStop);
  CHECK(job.asked_to_end(SIGINT, kStart + 1s) == Signals{SIGINT, SIGCONT});
  CHECK(job.deadline() == kStart + 30s);
  CHECK(job.reason() == StopReason::kFailure);
  CHECK(job.signal() == SIGINT); // no further attempt
  CHECK(job.asked_to_end(SIGINT, kStart + 2s) == kKill);
}

TEST_CASE("ranks that save after a signal do not get it again", "[unit]") {
  Supervisor job = job_of(3);
  CHECK(job.stop_with_others(kStart) == kStop);
  CHECK(job.asked_to_end(SIGTERM, kStart + 3s) == Signals{});
  CHECK(job.deadline() == kStart + 30s);
  CHECK(job.signal() == SIGTERM); // no further attempt
  CHECK(job.asked_to_end(SIGTERM, kStart + 4s) == kKill);
}

TEST_CASE("a signal is noted where no rank lives any more", "[unit]") {
  Supervisor job = job_of(1);
  job.rank_ended(0, kExit1, false, kStart);
  CHECK(job.asked_to_end(SIGTERM, kStart) == Signals{});
  CHECK(job.signal() == SIGTERM);
  CHECK(job.reason() == StopReason::kFailure);
}

TEST_CASE("ranks that hang may say where before they are killed", "[unit]") {
  Supervisor job = job_of(2);
  CHECK(job.hang(kStart) == Signals{SIGABRT, SIGCONT});
  CHECK(job.hang(kStart) == Signals{});
  CHECK(job.deadline() == kStart + Supervisor::kStackTime);
  CHECK(job.deadline_passed(kStart + 5s) == kKill);
  CHECK(job.reason() == StopReason::kHang);
}

TEST_CASE("the first signal counts once for half a second", "[unit]") {
  EndRequests requests;
  CHECK(requests.signal() == 0);
  CHECK(requests.take(SIGTERM, kStart));
  CHECK_FALSE(requests.take(SIGTERM, kStart));
  CHECK_FALSE(requests.take(SIGTERM, kStart + 499ms));
  CHECK(requests.count() == 1);
  CHECK(requests.take(SIGINT, kStart + 1ms));
  CHECK(requests.take(SIGTERM, kStart + 500ms));
  CHECK(requests.count() == 3);
  CHECK(requests.signal() == SIGTERM);
}

TEST_CASE("the first signal counts once whoever forwards it", "[unit]") {
  EndRequests requests;
  CHECK(requests.take(SIGTERM, kStart, 7));
  CHECK_FALSE(requests.take(SIGTERM, kStart + 9s, 8));
  CHECK(requests.take(SIGTERM, kStart + 9s, 8));
  CHECK(requests.take(SIGTERM, kStart + 9s, 7));
  CHECK(requests.take(SIGINT, kStart + 9s, 9));
}

using Beat = ProgressWatch::Beat;
using Beats = std::vector<std::optional<Beat>>;
using Found = std::vector<size_t>;

// Ranks at these beats, in a call.
Beats waiting(const std::vector<uint64_t>& beats) {
  Beats all;
  for (const uint64_t each : beats) {
    all.push_back(Beat{true, true, each});
  }
  return all;
}

TEST_CASE("progress is any joined rank's", "[unit]") {
  ProgressWatch watch;
  const auto hangs = [&](const Beats& beats, int seconds) {
    const auto now = kStart + std::chrono::seconds(seconds);
    watch.see(beats, now);
    return watch.hangs(10s, now);
  };
  // Ranks that do not use ddp or have not joined do not hang.
  CHECK_FALSE(hangs({Beat{}, Beat{}}, 60));
  CHECK_FALSE(hangs({Beat{}, Beat{true, false, 1}}, 61));
  CHECK_FALSE(hangs({Beat{}, Beat{true, false, 1}}, 70));
  CHECK(hangs({Beat{}, Beat{true, false, 1}}, 71));
  CHECK_FALSE(watch.hangs(0s, kStart + 71s)); // no timeout
  CHECK_FALSE(hangs({Beat{}, Beat{true, false, 2}}, 72));
  watch.resume(kStart + 72s, kStart + 172s);
  CHECK_FALSE(hangs({Beat{}, Beat{true, false, 2}}, 181));
  CHECK(hangs({Beat{}, Beat{true, false, 2}}, 182));
  CHECK_FALSE(hangs({Beat{}, std::nullopt}, 183));
}

TEST_CASE("a rank that is long in one call waits", "[unit]") {
  ProgressWatch watch;
  const auto found = [&](const Beats& beats, int seconds) {
    const auto now = kStart + std::chrono::seconds(seconds);
    watch.see(beats, now);
    return watch.waiting(10s, now);
  };
  CHECK(found(waiting({1, 5}), 0).empty());
  CHECK(found(waiting({1, 5}), 9).empty());
  // One rank has made progress, one has just begun a call.
  CHECK(found(waiting({1, 6, 3}), 10) == Found{0});
  CHECK(found(waiting({1, 6, 3}), 19) == Found{0});
  Beats returned = waiting({1, 6, 3});
  returned[2]->in_call = false;
  CHECK(found(returned, 20) == Found{0, 1});
  CHECK(found(waiting({1, 6, 3}), 21) == Found{0, 1});
  CHECK(found(waiting({1, 7, 3}), 30) == Found{0});
  watch.resume(kStart + 30s, kStart + 60s);
  CHECK(found(waiting({2, 7, 3}), 60).empty());
  CHECK(found(waiting({2, 7, 3}), 61) == Found{2});
}

} // namespace ddp::test::supervisor_test
