#include <tests/support/failures.h>
#include <tests/support/launched.h>

#include <ddp/process_group/collective_wait.h>
#include <ddp/reducer.h>
#include <nlohmann/json.hpp>

#include <sys/wait.h>

namespace ddp::test::crash_test {

using nlohmann::json;
using std::chrono::seconds;

// The tests find these functions by name in the reports. UBSan would end the
// process before the signal.
extern "C" __attribute__((noinline, no_sanitize("undefined"))) void
ddp_test_write(int* place) {
  *place = 1;
}

extern "C" __attribute__((noinline, no_sanitize("undefined"))) int
ddp_test_divide(int by) {
  return 1000 / by;
}

extern "C" __attribute__((noinline)) int ddp_test_descend(int depth) {
  volatile char memory[1024];
  memory[depth % 1024] = 1;
  return depth < 0 ? 0 : ddp_test_descend(depth + 1) + memory[0];
}

extern "C" __attribute__((noinline)) void ddp_test_abort() {
  std::abort();
}

extern "C" __attribute__((noinline)) int ddp_test_call(int (*function)()) {
  return function() + 1;
}

extern "C" __attribute__((noinline)) void ddp_test_wait() {
  std::cout << "waiting" << std::endl;
  for (volatile int i = 0;; i = i + 1) {
    pause();
  }
}

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

int* volatile nowhere = nullptr;
volatile int zero = 0;

/// Catch and the watchdog handle signals in this program.
void forget_handlers() {
  for (const int number : kSignals) {
    std::signal(number, SIG_DFL);
  }
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  sigaltstack(&none, nullptr);
}

bool is_default(int number) {
  struct sigaction action {};
  sigaction(number, nullptr, &action);
  return !(action.sa_flags & SA_SIGINFO) && action.sa_handler == SIG_DFL;
}

/// 3 ranks, each with a separate error file in `folder`.
std::vector<Command> commands_in(
    std::unique_ptr<TemporaryFolder>& folder,
    const std::function<void()>& body) {
  auto commands = commands_of_ranks(3, [&] {
    forget_handlers();
    body();
  });
  if (!commands.empty()) {
    folder = std::make_unique<TemporaryFolder>();
  }
  for (size_t r = 0; r < commands.size(); ++r) {
    commands[r].environment["TORCHELASTIC_ERROR_FILE"] =
        *folder / std::to_string(r);
  }
  return commands;
}

/// Runs `body` on each rank, which must end with this code. Returns their
/// folder.
std::unique_ptr<TemporaryFolder> run_all(
    int exit_code,
    const std::function<void()>& body) {
  std::unique_ptr<TemporaryFolder> folder;
  for (const auto& outcome : run(commands_in(folder, body), seconds(30))) {
    output_of(outcome, exit_code);
  }
  return folder;
}

/// The report of rank `rank`; null if there is none.
json report_of(const TemporaryFolder& folder, int rank) {
  const auto text = read_text(folder / std::to_string(rank));
  return text.empty() ? json() : json::parse(text).at("message");
}

std::string detail(const json& report, const char* name) {
  return report.at("extraInfo").at(name).get<std::string>();
}

/// Lets rank 1 of 3 run `crash`, which ends it with `exit_code`. Returns its
/// report, which is the only one. `use` may read the folder.
json report_of_crash(
    int exit_code,
    const std::function<void()>& crash,
    const std::function<void(const std::string&)>& use = nullptr) {
  std::unique_ptr<TemporaryFolder> folder;
  const auto commands = commands_in(folder, [&] {
    const auto group = init_process_group(kTimeout);
    if (group.rank() == 1) {
      crash();
    }
  });
  const auto outcomes = run(commands, seconds(30));
  for (int r = 0; r < 3; ++r) {
    INFO("rank " << r);
    output_of(outcomes.at(r), r == 1 ? exit_code : 0);
  }
  REQUIRE(folder->names() == std::set<std::string>{"1"});
  if (use) {
    use(*folder / "1");
  }
  return report_of(*folder, 1);
}

void require_first_frame(const json& report, const std::string& function) {
  REQUIRE_THAT(
      detail(report, "py_callstack"),
      Catch::Matchers::Matches(
          "#0 " + function +
          "\\+0x[0-9a-f]+ \\(backends_tests\\+0x[0-9a-f]+\\)\n#1 [^]*"));
}

void require_read_by_python(const std::string& path) {
  const std::string script =
      "import sys\n"
      "from torch.distributed.elastic.multiprocessing.errors import *\n"
      "failure = ProcessFailure(1, 99, -11, sys.argv[1])\n"
      "print(failure.message['message'], failure.timestamp > 1600000000)\n"
      "print(ChildFailedError('job', {1: failure}))\n";
  REQUIRE_THAT(
      python_output({"-c", script, path}),
      Has("Signal 11 (Segmentation fault) at address 0x0 True\n",
          "#0 ddp_test_write+0x"));
}

TEST_CASE("Python reads what a segmentation fault leaves") {
  python_with_torch();
  report_of_crash(
      128 + SIGSEGV, [] { ddp_test_write(nowhere); }, require_read_by_python);
}

TEST_CASE("a segmentation fault leaves its stack, the step and the activity") {
  const auto report =
      report_of_crash(128 + SIGSEGV, [] { ddp_test_write(nowhere); });
  REQUIRE(
      report.at("message") == "Signal 11 (Segmentation fault) at address 0x0");
  require_first_frame(report, "ddp_test_write");
  REQUIRE(detail(report, "rank") == "1");
  REQUIRE(detail(report, "step") == "0");
  REQUIRE(detail(report, "activity") == "after init_process_group");
  const auto time = std::stoll(detail(report, "timestamp"));
  REQUIRE(std::stoll(detail(report, "timestamp_ns")) / 1000000000 == time);
  REQUIRE(std::abs(time - std::time(nullptr)) < 60);
  REQUIRE(!report.at("extraInfo").contains("consequence"));
}

TEST_CASE("a crash report tells how far training was") {
  const auto folder = run_all(128 + SIGSEGV, [] {
    const auto group = init_process_group(kTimeout);
    torch::nn::Linear net(4, 4);
    const Reducer reducer(net, group);
    for (int step = 0; step < 3; ++step) {
      net->forward(torch::ones({2, 4})).sum().backward();
    }
    ddp_test_write(nowhere);
  });
  for (int r = 0; r < 3; ++r) {
    const auto report = report_of(*folder, r);
    REQUIRE(detail(report, "rank") == std::to_string(r));
    REQUIRE(detail(report, "step") == "3");
    REQUIRE(detail(report, "activity") == "after step 3");
  }
}

TEST_CASE("a crash on another thread leaves that thread's stack") {
  const auto report = report_of_crash(
      128 + SIGSEGV, [] { std::thread(ddp_test_write, nowhere).join(); });
  require_first_frame(report, "ddp_test_write");
}

TEST_CASE("a stack overflow is reported") {
  const auto report =
      report_of_crash(128 + SIGSEGV, [] { zero = ddp_test_descend(zero); });
  REQUIRE_THAT(
      report.at("message").get<std::string>(),
      Catch::Matchers::StartsWith(
          "Signal 11 (Segmentation fault) at address 0x"));
  require_first_frame(report, "ddp_test_descend");
}

TEST_CASE("a call of a null function pointer shows who called") {
  const auto report = report_of_crash(128 + SIGSEGV, [] {
    zero = ddp_test_call(reinterpret_cast<int (*)()>(nowhere));
  });
  REQUIRE_THAT(
      detail(report, "py_callstack"),
      Catch::Matchers::StartsWith("#0 0x0\n#1 ddp_test_call+0x"));
}

TEST_CASE("a stack that cannot be read leaves the rest of the report") {
  const auto report = report_of_crash(128 + SIGSEGV, [] {
    zero = ddp_test_call(reinterpret_cast<int (*)()>(nowhere + 2));
  });
  REQUIRE(
      report.at("message") == "Signal 11 (Segmentation fault) at address 0x8");
  REQUIRE(detail(report, "activity") == "after init_process_group");
}

#if defined(__x86_64__) // others divide by zero
TEST_CASE("a division by zero is reported") {
  const auto report =
      report_of_crash(128 + SIGFPE, [] { zero = ddp_test_divide(zero); });
  REQUIRE_THAT(
      report.at("message").get<std::string>(),
      Catch::Matchers::StartsWith(
          "Signal 8 (Floating point exception) at address 0x"));
  require_first_frame(report, "ddp_test_divide");
}
#endif

TEST_CASE("abort() is reported") {
  const auto report = report_of_crash(128 + SIGABRT, [] { ddp_test_abort(); });
  REQUIRE(report.at("message") == "Signal 6 (Aborted)");
  REQUIRE_THAT(detail(report, "py_callstack"), Has(" ddp_test_abort+0x"));
}

TEST_CASE("SIGABRT from outside shows what a rank that hangs does") {
  std::unique_ptr<TemporaryFolder> folder;
  const auto commands = commands_in(folder, [] {
    const auto group = init_process_group(kTimeout);
    if (group.rank() == 1) {
      ddp_test_wait();
    }
  });
  std::vector<Process> processes(commands.begin(), commands.end());
  REQUIRE(processes.at(1).wait_for("waiting", seconds(30)));
  processes[1].signal(SIGABRT);
  const auto outcomes = finish(processes, seconds(30));
  for (int r = 0; r < 3; ++r) {
    output_of(outcomes[r], r == 1 ? 128 + SIGABRT : 0);
  }
  const auto report = report_of(*folder, 1);
  REQUIRE(
      report.at("message") ==
      "Signal 6 (Aborted) sent by process " + std::to_string(getpid()));
  REQUIRE_THAT(detail(report, "py_callstack"), Has(" ddp_test_wait+0x"));
}

TEST_CASE("an uncaught exception keeps its text, and its victims say so") {
  const auto folder = run_all(128 + SIGABRT, [] {
    const auto group = init_process_group(kTimeout);
    if (group.rank() == 1) {
      throw_uncaught();
    }
    std::thread([&] { group.all_reduce(torch::ones({4})); }).join();
  });
  REQUIRE(folder->names() == std::set<std::string>{"0", "1", "2"});
  for (int r = 0; r < 3; ++r) {
    const auto report = report_of(*folder, r);
    const auto text = report.at("message").get<std::string>();
    REQUIRE_THAT(text, Has("std::runtime_error: boom in forward"));
    REQUIRE((r != 1 || text == "std::runtime_error: boom in forward"));
    const auto& details = report.at("extraInfo");
    REQUIRE(details.value("consequence", "") == (r == 1 ? "" : "true"));
    REQUIRE_FALSE(details.contains("py_callstack")); // no frames requested
    REQUIRE(detail(report, "rank") == std::to_string(r));
    REQUIRE(
        detail(report, "activity") ==
        (r == 1 ? "after init_process_group" : "all_reduce of 4 Float"));
    REQUIRE(
        std::stoll(detail(report, "timestamp_ns")) / 1000000000 ==
        std::stoll(detail(report, "timestamp")));
    const auto mode =
        std::filesystem::status(*folder / std::to_string(r)).permissions();
    REQUIRE(
        mode ==
        (std::filesystem::perms::owner_read |
         std::filesystem::perms::owner_write));
  }
}

TEST_CASE("a rank that catches a failure is a victim, however it ends") {
  const auto folder = run_all(128 + SIGABRT, [] {
    const auto group = init_process_group(kTimeout);
    if (group.rank() == 1) {
      throw_uncaught();
    }
    all_reduce_error(group);
    if (group.rank() == 0) {
      ddp_test_abort();
    }
    const std::thread not_joined([] {});
  });
  for (int r = 0; r < 3; ++r) {
    const auto details = report_of(*folder, r).at("extraInfo");
    REQUIRE(details.value("consequence", "") == (r == 1 ? "" : "true"));
  }
  REQUIRE(report_of(*folder, 0).at("message") == "Signal 6 (Aborted)");
  REQUIRE_THAT(
      report_of(*folder, 2).at("message").get<std::string>(),
      Has("was a std::thread destroyed that was not joined?"));
}

TEST_CASE("a wait for ranks that do not come is a consequence") {
  std::unique_ptr<TemporaryFolder> folder;
  const auto commands = commands_in(folder, [] {
    const auto brief = ProcessGroupOptions().timeout(seconds(2));
    std::thread([&] { (void)init_process_group(brief); }).join();
  });
  output_of(run(commands.at(1), seconds(30)), 128 + SIGABRT);
  REQUIRE(detail(report_of(*folder, 1), "consequence") == "true");
}

/// Runs `crash` in a forked child, which must end by this signal.
void crash_child(int number, void (*crash)()) {
  const auto child = fork();
  if (child == 0) {
    crash();
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(WTERMSIG(status) == number);
}

TEST_CASE("a forked child's crash is not the rank's") {
  const auto folder = run_all(0, [] {
    const auto group = init_process_group(kTimeout);
    crash_child(SIGSEGV, [] { ddp_test_write(nowhere); });
    crash_child(SIGABRT, []() noexcept { throw_boom(); });
    group.barrier();
    REQUIRE_NOTHROW(
        detail::look_for_failure(detail::ProcessGroupImpl::of(group)));
    group.barrier();
  });
  REQUIRE(folder->names().empty());
}

/// Ranks whose error file has this name.
RankOptions with_error_file(const char* name) {
  return RankOptions().environment({{"TORCHELASTIC_ERROR_FILE", name}});
}

/// Requires that a group handles no signal.
void check_no_handler(const ProcessGroupOptions& options) {
  forget_handlers();
  const auto group = init_process_group(options);
  for (const int number : kSignals) {
    REQUIRE(is_default(number));
  }
  group.barrier();
}

STARTED_TEST(
    "without an error file no signal is handled",
    3,
    with_error_file("")) {
  check_no_handler(kTimeout);
}

STARTED_TEST(
    "signals that the program handles stay its own",
    3,
    with_error_file("/dev/null/none").exit_codes({{0, 7}, {1, 7}, {2, 7}})) {
  forget_handlers();
  std::signal(SIGSEGV, [](int) { _exit(7); });
  const auto group = init_process_group(kTimeout);
  REQUIRE(!is_default(SIGBUS));
  group.barrier();
  ddp_test_write(nowhere);
}

STARTED_TEST(
    "no signal is handled where reports are off",
    3,
    with_error_file("/dev/null/none")) {
  check_no_handler(ProcessGroupOptions(kTimeout).report_uncaught(false));
}

} // namespace ddp::test::crash_test
