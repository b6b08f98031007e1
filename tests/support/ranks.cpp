#include <tests/support/child.h>
#include <tests/support/folder_of_ranks.h>
#include <tests/support/free_port.h>
#include <tests/support/ranks.h>
#include <tests/support/seed.h>
#include <tests/support/test_program.h>

#include <torch/cuda.h>

// LeakSanitizer's function, if a program is built with it.
extern "C" __attribute__((weak)) int __lsan_do_recoverable_leak_check();

namespace ddp::test {
namespace {

/// Counts the calls within one test case, equally in all processes.
std::string call_number() {
  static std::map<std::string, int> calls;
  return std::to_string(
      calls[Catch::getResultCapture().getCurrentTestName()]++);
}

/// Runs the body in a rank's process; returns its exit code.
int be_a_rank(const std::function<void()>& body) {
  int code = exit_code_of(body);
  if (__lsan_do_recoverable_leak_check && code == 0) { // _exit() skips it
    code = __lsan_do_recoverable_leak_check();
  }
  return code;
}

} // namespace

std::optional<Command> command_of_rank(
    const std::function<void()>& body,
    void (*end)(int)) {
  const auto call = call_number();
  if (const char* wanted = std::getenv("DDP_TEST_CALL")) {
    if (call == wanted) {
      end(be_a_rank(body));
    }
    return std::nullopt;
  }
  const auto test = Catch::getResultCapture().getCurrentTestName();
  if (!folder_of_ranks) {
    folder_of_ranks.emplace();
  }
  return Command{
      {std::filesystem::read_symlink("/proc/self/exe"), test_spec(test)},
      {{"DDP_TEST_CALL", call}, {"TMPDIR", folder_of_ranks->path()}}};
}

std::vector<Environment> environments_of_ranks(
    int size,
    const Environment& more) {
  const auto port = std::to_string(free_port());
  std::vector<Environment> environments;
  for (int rank = 0; rank < size; ++rank) {
    auto variables = more;
    variables.insert({"RANK", std::to_string(rank)});
    variables.insert({"WORLD_SIZE", std::to_string(size)});
    variables.insert({"MASTER_ADDR", "127.0.0.1"});
    variables.insert({"MASTER_PORT", port});
    variables.insert({"OMP_NUM_THREADS", "1"});
    // Tests for every backend also run with other backends.
    const char* backend = std::getenv("DDP_TEST_BACKEND");
    variables.insert({"DDP_BACKEND", backend ? backend : "gloo"});
    environments.push_back(std::move(variables));
  }
  return environments;
}

namespace {

/// Whether a fork of this process can replace a new process, in which loading
/// LibTorch takes most of a short test's time. A fork would lack other threads,
/// and a GPU's driver does not work in a fork.
bool can_fork() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return std::distance(begin(threads), end(threads)) == 1 &&
      !torch::cuda::is_available();
}

/// The ranks as forks of this process; none if they must be new processes.
std::vector<Process> forks(
    int size,
    const std::function<void()>& body,
    const RankOptions& options) {
  std::vector<Process> processes;
  if (std::getenv("DDP_TEST_CALL") || !options.environment().empty() ||
      !can_fork()) {
    return processes;
  }
  call_number();
  std::cout.flush();
  std::fflush(nullptr);
  for (const auto& environment : environments_of_ranks(size, {})) {
    processes.emplace_back([&] {
      set_variables(environment);
      seed_by_rank();
      return be_a_rank(body);
    });
  }
  return processes;
}

} // namespace

std::vector<Command> commands_of_ranks(
    int size,
    const std::function<void()>& body,
    const Environment& environment) {
  const auto again = command_of_rank(body, _exit);
  if (!again) {
    return {};
  }
  std::vector<Command> commands;
  for (auto& variables : environments_of_ranks(size, environment)) {
    commands.push_back(*again);
    commands.back().environment.merge(variables);
  }
  return commands;
}

std::vector<Outcome> ranks(
    int size,
    const RankOptions& options,
    const std::function<void()>& body) {
  auto processes = forks(size, body, options);
  if (processes.empty()) {
    const auto commands = commands_of_ranks(size, body, options.environment());
    if (commands.empty()) {
      return {};
    }
    for (const auto& command : commands) {
      processes.emplace_back(command);
    }
  }
  const auto outcomes = finish(processes, options.timeout());
  const auto& codes = options.exit_codes();
  for (const bool hung : {false, true}) { // a hang may follow a failure
    for (int rank = 0; rank < size; ++rank) {
      const auto& outcome = outcomes[rank];
      const auto other = codes.find(rank);
      INFO("rank " << rank << " of " << size << ":\n" << outcome.output);
      if (outcome.hung == hung) {
        REQUIRE(!outcome.hung);
        REQUIRE(
            outcome.exit_code == (other == codes.end() ? 0 : other->second));
      }
    }
  }
  return outcomes;
}

std::vector<Outcome> ranks(int size, const std::function<void()>& body) {
  return ranks(size, RankOptions(), body);
}

void ranks(int size, const std::function<void(ProcessGroup)>& body) {
  ranks(size, [&] { body(init_process_group()); });
}

void ranks_test(
    void (*body)(ProcessGroup, const std::string&),
    const char* /*title*/,
    const Sizes& sizes,
    const ProcessGroupOptions& options,
    const RankOptions& rank_options) {
  for (const int size : sizes) {
    const SharedFolder folder;
    ranks(size, rank_options, [&] {
      body(init_process_group(options), folder.path);
    });
  }
}

void started_test(
    void (*body)(const std::string&),
    const char* /*title*/,
    int size,
    const RankOptions& rank_options) {
  const SharedFolder folder;
  ranks(size, rank_options, [&] { body(folder.path); });
}

} // namespace ddp::test
