// Signals that ddprun receives.
#include <tests/support/catch_plain.h>

#include <signal.h>

#include <tests/launcher/launched_job.h>
#include <tests/support/skip.h>
#include <tests/support/temporary_folder.h>

namespace ddp::test::signal_test {

// Ranks that take a second to save when they are asked to end.
LaunchedJob saving_ranks(const std::string& options) {
  return shell(
      options,
      "trap 'sleep 1; echo saved; exit' TERM HUP\n"
      "echo ready $RANK $$; while :; do sleep 0.1; done");
}

// As a shell with job control starts it. SIGTSTP does not stop a process group
// that no other group of its session could continue.
JobSetup in_own_group() {
  JobSetup setup;
  setup.before_exec = [] { setpgid(0, 0); };
  return setup;
}

TEST_CASE("signals that end the job reach the ranks as sent", "[signal]") {
  const int signal = GENERATE(SIGTERM, SIGINT, SIGHUP, SIGQUIT);
  CAPTURE(signal);
  LaunchedJob job(words("--nproc-per-node 3 WORKER tell-signals"));
  job.wait_for_output("ready", 3);
  // Although every rank exits with 0.
  CHECK(job.wait_after(signal) == 128 + signal);
  CHECK(count_of(job.out(), "got " + std::to_string(signal) + "\n") == 3);
}

TEST_CASE("USR1 and USR2 are passed on and end nothing", "[signal]") {
  LaunchedJob job(words("--nproc-per-node 2 WORKER tell-signals"));
  job.wait_for_output("ready", 2);
  for (int signal : {SIGUSR1, SIGUSR2, SIGUSR1}) {
    const std::string news = "got " + std::to_string(signal) + "\n";
    const int before = count_of(job.out(), news);
    job.send(signal);
    job.wait_for_output(news, before + 2);
  }
  CHECK(job.wait_after(SIGTERM) == 128 + SIGTERM);
}

TEST_CASE("ranks deaf to SIGTERM are killed after the grace", "[signal]") {
  LaunchedJob job(words("--nproc-per-node 2 --grace 0.3 WORKER ignore-term"));
  job.wait_for_output("ready", 2);
  const auto before = Clock::now();
  CHECK(job.wait_after(SIGTERM) == 128 + SIGTERM);
  CHECK(Clock::now() - before >= std::chrono::milliseconds(300));
  CHECK_THAT(job.err(), Has("is over, killing ranks 0-1\n"));
}

TEST_CASE("a second signal kills at once", "[signal]") {
  LaunchedJob job(words("--nproc-per-node 2 WORKER ignore-term"));
  job.wait_for_output("ready", 2);
  job.send(SIGTERM);
  job.wait_for_output("stopping all ranks on signal 15");
  // Well before the grace of 30 s.
  CHECK(job.wait_after(SIGINT) == 128 + SIGTERM);
  CHECK_THAT(job.err(), Has("killing all ranks"));
}

TEST_CASE("the first signal again, a second later, kills at once", "[signal]") {
  LaunchedJob job(words("--nproc-per-node 3 WORKER ignore-term"));
  job.wait_for_output("ready", 3);
  job.send(SIGTERM);
  job.wait_for_output("waiting for ranks 0-2 to stop"); // said after a second
  CHECK(job.wait_after(SIGTERM) == 128 + SIGTERM);
  CHECK_THAT(job.err(), Has("again; killing all ranks"));
}

TEST_CASE("a signal to all processes of a job is one request", "[signal]") {
  LaunchedJob job = saving_ranks("--nproc-per-node 2");
  job.wait_for_output("ready", 2);
  for (const pid_t each : {job.store(), job.agent()}) {
    REQUIRE(kill(each, SIGTERM) == 0);
  }
  CHECK(job.wait_after(SIGTERM) == 128 + SIGTERM);
  CHECK(count_of(job.out(), "saved\n") == 2);
}

TEST_CASE("a signal to all processes, sent twice, is one request", "[signal]") {
  LaunchedJob job = saving_ranks("--nproc-per-node 3"); // as Slurm does
  job.wait_for_output("ready", 3);
  const pid_t all[] = {job.store(), job.agent(), job.pid()};
  const auto start = Clock::now();
  for (int i = 0; i < 2; ++i) {
    for (const pid_t each : all) {
      REQUIRE(kill(each, SIGTERM) == 0);
    }
    job.wait_for_output("stopping all ranks"); // the agent has the first
  }
  const int code = job.wait();
  const bool was_killed = count_of(job.err(), "killing all ranks") > 0;
  if (was_killed && Clock::now() - start > std::chrono::milliseconds(500)) {
    skip("this machine is too slow for two signals in half a second");
  }
  CHECK(code == 128 + SIGTERM);
  CHECK(count_of(job.out(), "saved\n") == 3);
}

// Options for three ranks on a host whose remote shell runs on this machine.
std::string by_remote_shell(const TemporaryFolder& folder) {
  write_program(folder / "rsh", "shift; sh -c \"$*\"; exit $?\n");
  return "--hosts=n0:3 --rsh '" + folder / "rsh" + "' ";
}

TEST_CASE("a signal to all processes by --hosts is one request", "[signal]") {
  const int signal = GENERATE(SIGTERM, SIGHUP);
  CAPTURE(signal);
  const TemporaryFolder folder;
  LaunchedJob job = saving_ranks(by_remote_shell(folder));
  job.wait_for_output("ready", 3);
  const pid_t agent = parent_of(job.worker(0));
  const pid_t launcher = parent_of(agent);
  for (const pid_t each : {parent_of(launcher), launcher, agent, job.pid()}) {
    REQUIRE(kill(each, signal) == 0);
  }
  CHECK(job.wait() == 128 + signal);
  CHECK(count_of(job.out(), "saved\n") == 3);
}

TEST_CASE("a signal that --hosts passes on late is one request", "[signal]") {
  const TemporaryFolder folder;
  LaunchedJob job(
      words(by_remote_shell(folder) + "--grace 2 WORKER ignore-term"));
  job.wait_for_output("ready", 3);
  const pid_t agent = parent_of(job.worker(0));
  REQUIRE(kill(parent_of(agent), SIGTERM) == 0);
  job.wait_for_output("waiting for ranks 0-2 to stop"); // said after a second
  CHECK(job.wait_after(SIGTERM) == 128 + SIGTERM);
  CHECK_THAT(job.err(), Has("is over, killing ranks 0-2\n"));
}

TEST_CASE("USR1 and USR2 to all processes of a job end nothing", "[signal]") {
  const int signal = GENERATE(SIGUSR1, SIGUSR2);
  CAPTURE(signal);
  const TemporaryFolder folder;
  const std::string end = folder / "end";
  LaunchedJob job = shell(
      "--nproc-per-node 2",
      "trap 'echo noted' USR1 USR2\n"
      "echo ready; until [ -e '" +
          end + "' ]; do sleep 0.1; done; exit 0"); // a signal ends `sleep`
  job.wait_for_output("ready", 2);
  for (const pid_t each : {job.store(), job.agent(), job.pid()}) {
    REQUIRE(kill(each, signal) == 0);
  }
  job.wait_for_output("noted", 2);
  write_text(end, "");
  CHECK(job.wait() == 0);
}

TEST_CASE("USR1 and USR2 end no remote shell", "[signal]") {
  const int signal = GENERATE(SIGUSR1, SIGUSR2);
  CAPTURE(signal);
  const TemporaryFolder folder;
  const std::string end = folder / "end", pid = folder / "pid";
  write_program(
      folder / "rsh", "echo $$ >'" + pid + "'; shift; sh -c \"$*\"; exit $?\n");
  LaunchedJob job = shell(
      "--hosts=n0:1 --rsh '" + folder / "rsh" + "'",
      "echo ready; until [ -e '" + end + "' ]; do sleep 0.1; done");
  job.wait_for_output("ready", 1);
  REQUIRE(kill(std::stoi(read_text(pid)), signal) == 0);
  write_text(end, "");
  CHECK(job.wait() == 0);
}

TEST_CASE("stopped ranks hear the signal", "[signal]") {
  LaunchedJob job(words("--nproc-per-node 2 WORKER tell-signals"));
  kill(job.worker(0), SIGSTOP);
  kill(job.worker(1), SIGSTOP);
  CHECK(job.wait_after(SIGTERM) == 128 + SIGTERM);
  CHECK(count_of(job.out(), "got 15\n") == 2);
}

TEST_CASE("an ignored SIGHUP stays ignored", "[signal]") {
  JobSetup setup;
  setup.before_exec = [] { std::signal(SIGHUP, SIG_IGN); }; // nohup
  LaunchedJob job(words("--nproc-per-node 2 WORKER tell-signals"), setup);
  job.wait_for_output("ready", 2);
  job.send(SIGHUP);
  job.send(SIGUSR1);
  job.wait_for_output("got " + std::to_string(SIGUSR1), 2);
  CHECK(job.wait_after(SIGTERM) == 128 + SIGTERM);
  CHECK(count_of(job.out(), "got 1\n") == 0);
}

TEST_CASE("the job is stopped and continued with ddprun", "[signal]") {
  LaunchedJob job(
      words("--nproc-per-node 2 WORKER tell-signals"), in_own_group());
  const pid_t ranks[] = {job.worker(0), job.worker(1)};
  for (int i = 0; i < 2; ++i) {
    job.send(SIGTSTP);
    for (pid_t each : {ranks[0], ranks[1], job.pid()}) {
      wait_for_state(each, "T");
    }
    job.send(SIGCONT);
    for (pid_t each : {ranks[0], ranks[1], job.pid()}) {
      wait_for_state(each, "SR");
    }
  }
  CHECK(job.wait_after(SIGTERM) == 128 + SIGTERM);
  CHECK(count_of(job.out(), "got 15\n") == 2);
}

TEST_CASE("a suspended job can be ended", "[signal]") {
  LaunchedJob job(
      words("--nproc-per-node 2 WORKER tell-signals"), in_own_group());
  const pid_t rank = job.worker(1);
  job.send(SIGTSTP);
  wait_for_state(rank, "T");
  wait_for_state(job.pid(), "T");
  job.send(SIGTERM); // followed by SIGCONT, as `kill %1` does
  CHECK(job.wait_after(SIGCONT) == 128 + SIGTERM);
}

} // namespace ddp::test::signal_test
