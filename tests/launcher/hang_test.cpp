// Ranks that stop making progress.
#include <tests/support/catch_plain.h>

#include <chrono>
#include <csignal>

#include <tests/launcher/launched_job.h>

namespace hang_test {

using namespace ddp::test;

TEST_CASE("a hang is ended, and every rank's place told", "[hang]") {
  LaunchedJob job(words("--nproc-per-node 3 --hang-timeout 2 WORKER beat 1 5"));
  CHECK(job.wait() == 124);
  CHECK_THAT(
      job.err(),
      ContainsSubstring(
          "ddprun: no progress for 2.0 s (--hang-timeout); all ranks were "
          "ended\n  rank 0 (pid "));
  CHECK_THAT(
      job.err(),
      ContainsSubstring("): after step 5, in all_reduce\n") &&
          ContainsSubstring("): after step 5, in read_batch\n"));
  CHECK(count_of(job.err(), "#0 net::forward()+0x1 (train+0x2)") == 3);
  CHECK(job.leaves_nothing());
}

TEST_CASE("ranks that go on do not hang", "[hang]") {
  LaunchedJob job(words(
      "--nproc-per-node 2 --hang-timeout 2 WORKER beat 0 200")); // twice as
                                                                 // long as the
                                                                 // timeout
  job.wait_for_output("ready", 2);
  job.send(SIGTERM);
  CHECK(job.wait() == 128 + SIGTERM);
}

TEST_CASE("programs that do not use ddp are not watched", "[hang]") {
  LaunchedJob job(words("--nproc-per-node 2 --hang-timeout 1 sleep 3"));
  CHECK(job.wait() == 0);
}

TEST_CASE("ranks that do not join in time are named", "[hang]") {
  LaunchedJob job(
      words("--nproc-per-node 3 --start-timeout 4 WORKER beat 2 -1"));
  CHECK(job.wait() == 124);
  CHECK_THAT(
      job.err(),
      ContainsSubstring(
          "ddprun: rank 2 had formed no group after 4.0 s (--start-timeout)"));
  CHECK(job.leaves_nothing());
}

TEST_CASE("who waits long for a rank that has left is told once", "[hang]") {
  // Rank 3 is in no call.
  LaunchedJob job(
      words("--nproc-per-node 4 WORKER call 0 'save_checkpoint(\"net.pt\"): "
            "barrier' 13000 '' 0 1 'after load' 0 '' 0 2 all_reduce 13000 '' 0 "
            "3 'after load' 13000 '' 0"));
  CHECK(job.wait() == 0);
  CHECK(
      count_of(
          job.err(),
          "ddprun: rank 2 has been in all_reduce, rank 0 in "
          "save_checkpoint(\"net.pt\") for more than 10.0 s; rank 1 has ended "
          "with code 0\n") == 1);
  CHECK(count_of(job.err(), "has ended with code 0") == 1);
}

} // namespace hang_test
