// ddprun at a terminal.
#include <tests/support/catch_plain.h>

#include <tests/launcher/launched_job.h>
#include <tests/launcher/multiplexer_fixture.h>

namespace ddp::test::terminal_test {

JobSetup at_terminal() {
  return {{{"OMP_NUM_THREADS", "1"}, {"LC_ALL", "C"}}, "", true, nullptr};
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
  std::this_thread::sleep_for(std::chrono::seconds(6)); // ddprun waits
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

// As by `srun --pty ddprun` and `docker run -it`.
TEST_CASE("^Z stops no job that no shell could continue", "[terminal]") {
  LaunchedJob job(
      words("--nproc-per-node 3 WORKER tell-signals"), at_terminal());
  job.wait_for_output("ready", 3);
  job.type("\x1a");
  job.type("\x03"); // ^C
  CHECK(job.wait() == 128 + SIGINT);
  CHECK(count_of(job.out(), "got 2") == 3);
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
  // The SIGCONT of bg cancels a SIGTSTP that the agent has not received yet.
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

// The multiplexer at a terminal.

namespace fs = std::filesystem;

TEST_CASE("rank 0's progress bar stays below all lines", "[terminal]") {
  TerminalTest test;
  const FileDescriptor rank = test.rank(0);
  const FileDescriptor other = test.rank(1);
  // The terminal cuts a bar that is too long for its line.
  const std::string bar = "\x1b[?7l[0] 10%\x1b[0m\x1b[?7h";
  say(rank, "10%\r");
  test.reader.until(bar);
  say(other, "a bar too\rhello\n");
  test.reader.until("\r\x1b[K[1] hello\n" + bar);
  test.multiplexer->message("ddprun: news");
  test.reader.until("\r\x1b[Kddprun: news\n" + bar);
  say(other, "its own bar\r");
  say(rank, "20%\r");
  test.reader.until("\r\x1b[K\x1b[?7l[0] 20%");
  say(rank, "100%\nnot a bar");
  test.reader.until("h\r\x1b[K[0] 100%\n");
  say(rank, "\nthe end\n");
  const std::string text = test.finish();
  CHECK(text.find("the end") < text.find("its own bar"));
  CHECK(count_of(text, "\n[0] not a bar\n") == 1);
}

TEST_CASE("a terminal that is held up holds up no rank", "[terminal]") {
  TerminalTest test(200);
  const FileDescriptor rank = test.rank(0);
  test.multiplexer->message("ddprun: before");
  const size_t much = 20'000'000;
  REQUIRE(flood(rank, much) >= much);
  test.multiplexer->message("ddprun: while nobody reads");
  say(test.rank(1), "also dropped\n");
  test.multiplexer->drain();
  REQUIRE(readable(test.multiplexer->done_fd(), kReadPatience));
  test.reader.until("lines dropped: ");
  test.reader.until("\n");
  CHECK(count_of(test.reader.text(), "ddprun: before\n") == 1);
  CHECK(count_of(test.reader.text(), "ddprun: while nobody reads\n") == 1);
  say(test.rank(1), "lives on\nthe end\n");
  const std::string text = test.finish();
  CHECK(count_of(text, "\n[1] lives on\n") == 1);
  const size_t note = text.find("lines dropped: ") + 15;
  const size_t dropped = std::stoul(text.substr(note));
  const auto shown = static_cast<size_t>(count_of(text, "x\n"));
  CHECK(shown + dropped == much / 4096 + 1 + 1);
}

TEST_CASE(
    "the terminal's ^S and ^Q are no loss within the time",
    "[terminal]") {
  TerminalTest test;
  const FileDescriptor rank = test.rank(0);
  const int ours = test.to_keep.get();
  REQUIRE(tcflow(ours, TCOOFF) == 0);
  say(rank, "held\n");
  test.multiplexer->drain();
  REQUIRE(readable(test.multiplexer->done_fd(), kReadPatience));
  CHECK(test.reader.has_nothing());
  REQUIRE(tcflow(ours, TCOON) == 0);
  test.reader.until("[0] held\n");
  say(test.rank(1), "the end\n");
  CHECK(count_of(test.finish(), "dropped") == 0);
}

TEST_CASE("a rank can have a terminal of its own", "[terminal]") {
  PumpTest test;
  PseudoTerminal pty = open_terminal();
  CHECK(isatty(pty.slave.get()) == 1);
  CHECK((fcntl(pty.slave.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK((fcntl(pty.master.get(), F_GETFD) & FD_CLOEXEC) != 0);
  say(pty.slave, "raw\n");
  char raw[16];
  REQUIRE(readable(pty.master.get(), kReadPatience));
  CHECK(read(pty.master.get(), raw, sizeof raw) == 4);
  test.multiplexer->add(std::move(pty.master), {0, 0, Stream::kOut, 0});
  say(pty.slave, "one\ntwo\r\nthree");
  pty.slave.reset();
  test.out.until("[0] three\n"); // its end is noticed
  test.finish();
  CHECK(test.out.text() == "[0] one\n[0] two\n[0] three\n");
}

} // namespace ddp::test::terminal_test
