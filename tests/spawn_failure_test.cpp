// ddp::spawn if workers fail or the program is killed.
#include <tests/support/failures.h>
#include <tests/support/launched.h>

#include <common/file_descriptor.h>

#include <fcntl.h>

namespace ddp::test::spawn_failure_test {

using Texts = std::vector<std::string>;

Command spawned(Texts arguments, const std::string& temporary = "/tmp") {
  arguments.insert(arguments.begin(), program("spawned"));
  return {
      arguments,
      {{"DDP_DEVICE", "cpu"},
       {"RANK", ""},
       {"WORLD_SIZE", ""},
       {"TMPDIR", temporary}}};
}

/// The error message of a program whose spawn must fail.
std::string error_of(const Texts& arguments) {
  const TemporaryFolder folder;
  const auto outcome = run(spawned(arguments, folder.path()), kLong);
  const auto output = output_of(outcome, 1);
  CHECK(folder.names().empty());
  CHECK(outcome.seconds.count() < 50); // no wait has run into a timeout
  const auto begin = output.find("error: ");
  REQUIRE(begin != std::string::npos);
  const std::regex pid("\\(pid [0-9]+\\)");
  return std::regex_replace(output.substr(begin), pid, "(pid)");
}

/// Waits for a program's workers, and returns their processes.
std::vector<pid_t> workers_of(Process& process, int size) {
  for (int rank = 0; rank < size; ++rank) {
    const auto line = "rank " + std::to_string(rank) + " of process ";
    REQUIRE(process.wait_for(line, kLong));
  }
  auto pids = children_of(process.pid());
  REQUIRE(pids.size() == static_cast<size_t>(size));
  return pids;
}

bool has_ended(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string name;
  std::string state;
  return !(file >> pid >> name >> state) || state == "Z" || state == "X";
}

void check_ended(const std::vector<pid_t>& pids) {
  for (const auto pid : pids) {
    const auto ended = [&] { return has_ended(pid); };
    CHECK(becomes_true(ended, std::chrono::seconds(10)));
  }
}

TEST_CASE("spawn throws with the message of a worker's exception") {
  CHECK(
      error_of({"3", "throw", "1"}) ==
      "error: spawn: rank 1 of 3 (pid) failed: std::runtime_error: no data for "
      "\"it\"\n");
  CHECK(
      error_of({"1", "number", "0"}) ==
      "error: spawn: rank 0 of 1 (pid) failed: an exception that is not a "
      "std::exception\n");
}

TEST_CASE("spawn throws with the first failure, also where it ends last") {
  // A worker that is slow to end is killed, but still counts as the first.
  CHECK_THAT(
      error_of({"2", "slow"}),
      Has("error: spawn: rank 1 of 2 (pid) ",
          ": std::runtime_error: the origin\n"));
}

TEST_CASE("spawn says how a worker ended that has no message") {
  CHECK(
      error_of({"3", "exit", "2", "3"}) ==
      "error: spawn: rank 2 of 3 (pid) ended with exit code 3\n");
  CHECK(
      error_of({"2", "kill", "0"}) ==
      "error: spawn: rank 0 of 2 (pid) was killed by signal 9 (Killed)\n");
}

TEST_CASE("spawn says where a worker has crashed") {
  const auto error = error_of({"3", "crash", "1"});
  INFO(error);
  CHECK_THAT(
      error,
      Has("error: spawn: rank 1 of 3 (pid) was killed by signal 11 "
          "(Segmentation fault): Signal 11 (Segmentation fault) at address "
          "0x0\n  #0 "));
  CHECK_THAT(error, Has("worker_of"));
}

TEST_CASE("spawn takes a number of processes above 0 only") {
  for (const auto* count : {"0", "-3"}) {
    CHECK(
        error_of({count, "sum"}) ==
        std::string("error: spawn: the number of processes must be from 1 to "
                    "32767, but is ") +
            count + "\n");
  }
}

// UBSan's check of types needs descriptors of its own.
#ifndef __SANITIZE_ADDRESS__
TEST_CASE("spawn throws where a worker cannot be started") {
  auto command = spawned({"200", "leaves"});
  command.arguments.insert(
      command.arguments.begin(),
      {"bash", "-c", "ulimit -n 64; exec \"$0\" \"$@\""});
  CHECK_THAT(
      output_of(run(command, kLong), 1),
      Has("error: spawn: cannot ",
          ": Too many open files\ndescriptors left: 0\n"));
}
#endif

TEST_CASE("workers that do not end when asked to are killed") {
  CHECK(
      error_of({"2", "deaf", "1"}) ==
      "error: spawn: rank 1 of 2 (pid) failed: std::runtime_error: no data\n");
}

TEST_CASE("workers may have any time to end, but none below 0") {
  const auto longest = std::to_string(std::chrono::milliseconds::max().count());
  CHECK_THAT(
      output_of(run(spawned({"2", "grace", "1", longest}), kLong), 1),
      Has("saved\n"));
  CHECK(
      error_of({"2", "grace", "1", "-1"}) ==
      "error: spawn: the grace must not be below 0, but is -1 ms\n");
}

TEST_CASE("one of several processes cannot spawn") {
  CHECK_THAT(
      output_of(
          run(with_ddprun(2, {program("spawned"), "2", "sum"}), kLong), 1),
      Has("and WORLD_SIZE=2, this is already one of several processes, and "
          "each would start separate workers: start the program without "
          "ddprun, torchrun or these variables, or call the worker function "
          "directly under a launcher"));
}

TEST_CASE("a test that a worker forks before its call cannot spawn") {
  CHECK_THAT(
      error_of({"1", "forked"}),
      Has("error: spawn was called in a process that a worker forked or "
          "started before the worker's own call. ",
          "unset DDP_SPAWN\n"));
}

TEST_CASE("workers end with a program that is killed") {
  Process process(spawned({"3", "wait"}));
  const auto workers = workers_of(process, 3);
  process.signal(SIGKILL);
  CHECK(process.finish(kLong).exit_code == 128 + SIGKILL);
  check_ended(workers);
}

TEST_CASE("a signal that ends the program is passed on to the workers") {
  Process process(spawned({"2", "asked"}));
  const auto workers = workers_of(process, 2);
  process.signal(SIGTERM);
  CHECK_THAT(
      output_of(process.finish(kLong), 128 + SIGTERM), Has("saved\nsaved\n"));
  check_ended(workers);
}

TEST_CASE("a second signal kills the workers") {
  Process process(spawned({"1", "stubborn"}));
  const auto workers = workers_of(process, 1);
  process.signal(SIGINT);
  REQUIRE(process.wait_for("asked", kLong));
  process.signal(SIGTERM);
  CHECK(process.finish(kLong).exit_code == 128 + SIGINT);
  check_ended(workers);
}

TEST_CASE("a signal that is sent twice at once, as by timeout, is one") {
  Process process(spawned({"1", "stubborn"}));
  workers_of(process, 1);
  const auto start = Clock::now();
  process.signal(SIGTERM);
  REQUIRE(process.wait_for("asked\n", kLong));
  process.signal(SIGTERM);
  process.signal(SIGUSR1); // makes the worker save, and end
  const auto output = output_of(process.finish(kLong), 128 + SIGTERM);
  if (Clock::now() - start < std::chrono::seconds(2)) {
    CHECK_THAT(output, Has("saved"));
  }
}

/// A program whose spawn's workers do not end, on a terminal of its own.
struct OnTerminal {
  OnTerminal()
      : terminal(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)),
        process(command()) {
    REQUIRE(process.wait_for("rank 0 of process ", kLong));
    program = children_of(process.pid()).at(0);
  }

  Command command() const {
    if (!terminal || grantpt(terminal.get()) != 0 ||
        unlockpt(terminal.get()) != 0) {
      skip("there is no pseudo-terminal");
    }
    auto result = spawned({"1", "stubborn"});
    result.arguments.insert(
        result.arguments.begin(),
        {"bash",
         "-c",
         "exec setsid --ctty --wait \"$@\" <\"$0\"",
         ptsname(terminal.get())});
    return result;
  }

  FileDescriptor terminal;
  Process process;
  pid_t program = 0;
};

TEST_CASE("what a terminal's key sends to all is not passed on as well") {
  OnTerminal on;
  const auto press_ctrl_c = [&] {
    CHECK(write_all(on.terminal.get(), "\x03") == 0);
  };
  REQUIRE(kill(on.program, SIGSTOP) == 0); // or the signals could merge
  press_ctrl_c();
  REQUIRE(on.process.wait_for("asked\n", kLong));
  REQUIRE(kill(on.program, SIGCONT) == 0);
  CHECK_FALSE(on.process.wait_for("asked\nasked\n", std::chrono::seconds(1)));
  press_ctrl_c(); // which kills
  on.process.finish(kLong);
}

TEST_CASE("a terminal that closes, and its shell, ask once") {
  for (const bool shell_first : {true, false}) {
    OnTerminal on;
    const auto start = Clock::now();
    for (const bool by_shell : {shell_first, !shell_first}) {
      if (by_shell) {
        REQUIRE(kill(on.program, SIGHUP) == 0);
      } else {
        on.terminal.reset();
      }
      REQUIRE(on.process.wait_for("asked\n", kLong));
    }
    REQUIRE(kill(on.program, SIGUSR1) == 0); // makes the worker save, and end
    const auto outcome = on.process.finish(kLong);
    if (Clock::now() - start < std::chrono::seconds(2)) {
      CHECK_THAT(outcome.output, Has("saved"));
    }
  }
}

} // namespace ddp::test::spawn_failure_test
