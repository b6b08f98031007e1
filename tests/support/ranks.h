#pragma once

#include <ddp/process_group.h>
#include <tests/support/catch.h>

namespace ddp::test {

/// The folder that the test's first process made, which its ranks use as well.
struct SharedFolder {
  SharedFolder() {
    if (!std::getenv("DDP_TEST_FOLDER")) {
      own = std::make_unique<TemporaryFolder>();
      setenv("DDP_TEST_FOLDER", (*own / "").c_str(), 1);
    }
    path = std::getenv("DDP_TEST_FOLDER");
  }
  ~SharedFolder() {
    if (own) {
      unsetenv("DDP_TEST_FOLDER");
    }
  }
  std::unique_ptr<TemporaryFolder> own;
  std::string path;
};

/// Returns when the file exists; only the test's timeout limits the wait.
inline void await(const std::string& flag) {
  while (!std::filesystem::exists(flag)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

/// How the ranks of a multi-process test run.
struct RankOptions {
  using Codes = std::map<int, int>;

  TORCH_ARG(Environment, environment);
  TORCH_ARG(std::chrono::seconds, timeout) = std::chrono::seconds(60);
  /// The exit codes of ranks that must not end with 0.
  TORCH_ARG(Codes, exit_codes);
};

/// Runs `body` on `size` ranks and checks that each passes in time.
///
/// Each rank is a separate process, with the environment that a launcher would
/// set: a fork of this process or, if this process has threads or a GPU, or the
/// options have an environment, this program started again to run the same test
/// case up to the same call. There, `body` runs and the process ends, so code
/// after the call runs in the first process only. (In a test with several
/// calls, a rank of a later call passes the earlier calls, which then return
/// nullopt.) Ranks share data through a SharedFolder, not through a variable.
/// Failed assertions of a rank are shown with its output; a hanging rank
/// reports its position. Returns how the ranks ended.
std::vector<Outcome> ranks(
    int size,
    const RankOptions& options,
    const std::function<void()>& body);
std::vector<Outcome> ranks(int size, const std::function<void()>& body);

/// Like the function above, but `body` gets a group of all ranks.
void ranks(int size, const std::function<void(ProcessGroup)>& body);

/// The numbers of ranks of a RANKS_TEST, which runs with each of these numbers.
struct Sizes : std::vector<int> {
  Sizes(int size) : vector({size}) {}
  Sizes(std::initializer_list<int> sizes) : vector(sizes) {}
};

/// A test case whose body runs on three ranks, or on the given numbers of
/// ranks, with their `group` and a shared `folder`, which ends with a slash.
/// Options of the group and the ranks may follow:
/// RANKS_TEST("title") {...}, RANKS_TEST("title", {3, 4}) {...}
#define RANKS_TEST(...)                             \
  DDP_TEST_BY(                                      \
      ranks_test,                                   \
      ([[maybe_unused]] ::ddp::ProcessGroup group,  \
       [[maybe_unused]] const std::string& folder), \
      __VA_ARGS__)
void ranks_test(
    void (*body)(ProcessGroup, const std::string&),
    const char* title,
    const Sizes& sizes = 3,
    const ProcessGroupOptions& options = {},
    const RankOptions& rank_options = {});

/// A test case whose ranks have not formed a group.
#define STARTED_TEST(...) \
  DDP_TEST_BY(            \
      started_test, ([[maybe_unused]] const std::string& folder), __VA_ARGS__)
void started_test(
    void (*body)(const std::string&),
    const char* title,
    int size = 3,
    const RankOptions& rank_options = {});

/// The variables that a launcher would set for each rank, and `more`.
std::vector<Environment> environments_of_ranks(
    int size,
    const Environment& more = {});

/// The commands of the ranks that `ranks` runs, for a test that starts and ends
/// the ranks itself. In a rank of this call, `body` runs and the process ends.
/// The list is empty in a rank of another call.
std::vector<Command> commands_of_ranks(
    int size,
    const std::function<void()>& body,
    const Environment& environment = {});

/// For other ways to start ranks: the command that runs the same test case up
/// to this call. There, `body` runs, and `end` ends the process with its exit
/// code. Returns nothing in a rank of another call.
std::optional<Command> command_of_rank(
    const std::function<void()>& body,
    void (*end)(int));

/// This rank's number, before a group exists.
inline int64_t own_rank() {
  return std::stoll(std::getenv("RANK"));
}

} // namespace ddp::test
