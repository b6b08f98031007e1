// Attempts after the first.
#include <tests/support/catch_plain.h>

#include <signal.h>

#include <tests/launcher/launched_job.h>
#include <tests/support/temporary_folder.h>

namespace ddp::test::restart_test {

// Rank 1 exits with the code at the index of this attempt, while the others
// wait; all exit with 0 if there is no such code.
std::string attempts(const std::string& codes) {
  return "bash -c 'echo attempt $TORCHELASTIC_RESTART_COUNT port $MASTER_PORT; "
         "code=${@:TORCHELASTIC_RESTART_COUNT + 1:1}; [[ $code ]] || exit 0; "
         "[[ $RANK != 1 ]] || exit $code; exec sleep 60' bash " +
      codes;
}

TEST_CASE("a failed attempt is followed by a fresh one", "[restart]") {
  LaunchedJob job(
      words("--nproc-per-node 3 --max-restarts 3 " + attempts("3 4")));
  CHECK(job.wait() == 0);
  for (const char* attempt : {"attempt 0", "attempt 1"}) {
    CHECK(count_of(job.out(), attempt) >= 1);
  }
  CHECK(count_of(job.out(), "attempt 2") == 3);
  CHECK(count_of(job.out(), "attempt 3") == 0);
  const auto ports = matches(job.out(), " port (\\d+)");
  // Each attempt has a new store.
  CHECK(std::set<Texts>(ports.begin(), ports.end()).size() == 3);
  CHECK_THAT(job.err(), Has("exited with code 3"));
  CHECK_THAT(job.err(), Has("started again (1 of 3 restarts)\n"));
  CHECK_THAT(job.err(), Has("started again (2 of 3 restarts)\n"));
}

TEST_CASE("restarts come to an end", "[restart]") {
  LaunchedJob job(
      words("--nproc-per-node 2 --max-restarts 2 " + attempts("3 4 5 6")));
  CHECK(job.wait() == 5);
  CHECK(count_of(job.out(), "attempt 2") >= 1);
  CHECK(count_of(job.out(), "attempt 3") == 0);
  CHECK_THAT(job.err(), Has("restarts: 2 of 2 were used"));
}

TEST_CASE("a signal ends a job whatever restarts are left", "[restart]") {
  LaunchedJob job(words("--nproc-per-node 2 --max-restarts 9 WORKER wait"));
  job.wait_for_output("ready", 2);
  CHECK(job.wait_after(SIGTERM) == 128 + SIGTERM);
  CHECK(count_of(job.out(), "ready") == 2);
}

TEST_CASE("a signal while an attempt ends is the job's end", "[restart]") {
  const TemporaryFolder folder;
  LaunchedJob job(words(
      "--nproc-per-node 2 --max-restarts 9 --grace 3 --report '" +
      folder / "report.json" + "' WORKER ignore-term 1 4"));
  job.wait_for_output("ready", 2);
  kill(job.worker(1), SIGUSR1); // rank 0 is slow to stop
  wait_for_death(job.worker(1));
  CHECK(job.wait_after(SIGTERM) == 128 + SIGTERM);
  CHECK(count_of(job.out(), "ready") == 2);
  CHECK_THAT(
      read_text(folder / "report.json"),
      Has("\"exit_code\": 143") && Has("\"signal\": 15"));
}

TEST_CASE("a signal between attempts is the job's end", "[restart]") {
  for (int i = 0; i < 20; ++i) {
    const TemporaryFolder folder;
    LaunchedJob job(words(
        "--max-restarts 100000 --report '" + folder / "report.json" +
        "' sh -c 'exit 3'"));
    job.wait_for_output("started again", 1 + i);
    CHECK(job.wait_after(SIGTERM) == 128 + SIGTERM);
    CHECK_THAT(job.err(), Has(" on signal 15"));
    CHECK_THAT(read_text(folder / "report.json"), Has("\"exit_code\": 143"));
  }
}

TEST_CASE("a restart finds nothing of the attempt before", "[restart]") {
  LaunchedJob job(
      words("--nproc-per-node 2 --max-restarts 1 --grace 0.2 WORKER family"));
  job.wait_for_output("ready", 2);
  const pid_t store = job.store();
  kill(job.worker(1), SIGKILL);
  job.wait_for_output("ready", 4);
  CHECK(kill(store, 0) != 0);
  CHECK(job.store() != store);
  job.wait_after(SIGINT);
}

TEST_CASE("what cannot be executed is not tried again", "[restart]") {
  LaunchedJob job(words("--max-restarts 5 /dev/null/x"));
  CHECK(job.wait() == 127);
  CHECK(count_of(job.err(), "started again") == 0);
}

} // namespace ddp::test::restart_test
