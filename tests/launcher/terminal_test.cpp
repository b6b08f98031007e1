// ddprun at a terminal.
#include <tests/support/catch_plain.h>

#include <chrono>
#include <csignal>
#include <thread>

#include <unistd.h>

#include <tests/launcher/launched_job.h>

namespace ddp::test::terminal_test {

namespace {

// The lines that a terminal shows after this text.
std::vector<std::string> shown(const std::string& text) {
  std::vector<std::string> lines = {""};
  size_t column = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      column = 0;
    } else if (text[i] == '\n') {
      lines.emplace_back();
    } else if (text.compare(i, 3, "\x1b[K") == 0) {
      lines.back().resize(column);
      i += 2;
    } else {
      lines.back().resize(std::max(lines.back().size(), column + 1), ' ');
      lines.back()[column++] = text[i];
    }
  }
  return lines;
}

JobSetup at_terminal() {
  return {{"OMP_NUM_THREADS=1", "NO_COLOR=1"}, "", true, nullptr};
}

} // namespace

TEST_CASE("rank 0 is told of the terminal", "[terminal]") {
  LaunchedJob job(
      words("--nproc-per-node 2 WORKER environment DDP_TTY"), at_terminal());
  CHECK(job.wait() == 0);
  CHECK(count_of(job.out(), "[0] DDP_TTY=1") == 1);
  CHECK(count_of(job.out(), "[1] DDP_TTY is unset") == 1);
}

TEST_CASE("a terminal shows how the job stands", "[terminal]") {
  LaunchedJob job(
      words("--nproc-per-node 2 --max-restarts 3 WORKER wait"), at_terminal());
  job.wait_for_output("ddprun: 2 of 2 ranks running, 0 of 3 restarts, 0:");
  kill(job.worker(1), SIGKILL);
  job.wait_for_output("ddprun: 2 of 2 ranks running, 1 of 3 restarts, 0:");
  CHECK(job.wait_after(SIGTERM) == 128 + SIGTERM);
  CHECK(count_of(shown(job.out()).back(), "running") == 0); // it is gone
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
  // In the background it leaves the shell's line alone.
  shell.type("sleep 1.5; echo slept\n");
  shell.wait_for_output("slept", 2);
  const size_t begin = shell.out().rfind("sleep 1.5");
  CHECK(shell.out().find("ranks running", begin) == std::string::npos);
  shell.type("fg\n");
  shell.wait_for_output("2 of 2 ranks running");
  shell.type("\x03"); // ^C
  shell.wait_for_output("got 2", 2);
  shell.type("echo code $?\n");
  shell.wait_for_output("code 130");
  shell.type("exit\n");
  shell.wait();
}

} // namespace ddp::test::terminal_test
