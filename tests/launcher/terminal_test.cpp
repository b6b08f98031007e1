// ddprun at a terminal.
#include <tests/support/catch_plain.h>

#include <tests/launcher/launched_job.h>

namespace ddp::test::terminal_test {

JobSetup at_terminal() {
  return {{"OMP_NUM_THREADS=1"}, "", true, nullptr};
}

TEST_CASE("rank 0 is told of the terminal", "[terminal]") {
  LaunchedJob job(
      words("--nproc-per-node 2 WORKER environment DDP_TTY"), at_terminal());
  CHECK(job.wait() == 0);
  CHECK(count_of(job.out(), "[0] DDP_TTY=1") == 1);
  CHECK(count_of(job.out(), "[1] DDP_TTY is unset") == 1);
}

TEST_CASE("a terminal that is held loses no report", "[terminal]") {
  LaunchedJob job(words("--nproc-per-node 2 WORKER wait"), at_terminal());
  const pid_t rank = job.worker(1);
  const pid_t other = job.worker(0);
  const pid_t agent = job.agent();
  job.type("\x13"); // ^S
  kill(rank, SIGKILL);
  wait_for_death(other);
  std::this_thread::sleep_for(std::chrono::seconds(6)); // is not given up
  CHECK(kill(agent, 0) == 0);
  job.type("\x11"); // ^Q
  CHECK(job.wait() == 128 + SIGKILL);
  CHECK(count_of(job.out(), "ddprun: rank 1 (pid ") == 1);
  CHECK(count_of(job.out(), "others: rank 0 was stopped") == 1);
}

TEST_CASE("^C is passed on once", "[terminal]") {
  LaunchedJob job(
      words("--nproc-per-node 2 WORKER tell-signals"), at_terminal());
  job.wait_for_output("ready", 2);
  job.type("\x03");
  CHECK(job.wait() == 128 + SIGINT);
  CHECK(count_of(job.out(), "got 2") == 2);
  CHECK(count_of(job.out(), "killing all ranks") == 0);
}

TEST_CASE("a shell stops and continues the job", "[terminal]") {
  JobSetup setup = at_terminal();
  setup.before_exec = [] {
    setenv("PS1", "shell> ", 1);
    execlp("bash", "bash", "--norc", "--noediting", "-i", nullptr);
  };
  LaunchedJob shell({}, setup);
  shell.wait_for_output("shell> ");
  shell.type("'" DDPRUN_PATH "' --nproc-per-node 2 '" WORKER_PATH
             "' tell-signals\n");
  const pid_t rank = shell.worker(1);
  shell.worker(0);
  shell.type("\x1a"); // ^Z
  shell.wait_for_output("Stopped");
  wait_for_state(rank, "T");
  shell.type("fg\n");
  wait_for_state(rank, "SR");
  // The SIGCONT of bg takes back a SIGTSTP that the agent did not hear yet.
  kill(parent_of(rank), SIGSTOP);
  shell.type("\x1a");
  shell.wait_for_output("Stopped", 2);
  shell.type("bg\n");
  wait_for_state(rank, "SR");
  shell.type("kill -INT %1; wait %1; echo code $?\n");
  shell.wait_for_output("code 130");
  shell.type("exit\n");
  shell.wait();
}

} // namespace ddp::test::terminal_test
