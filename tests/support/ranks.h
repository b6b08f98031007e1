#pragma once

#include <c10/macros/Macros.h>
#include <ddp/process_group.h>
#include <tests/support/catch.h>
#include <tests/support/process.h>

namespace ddp::test {

/// How the ranks of a multi-process test run.
struct RankOptions {
  using Codes = std::map<int, int>;

  TORCH_ARG(Environment, environment);
  TORCH_ARG(std::chrono::seconds, timeout) = std::chrono::seconds(60);
  /// Of ranks that shall not end with 0.
  TORCH_ARG(Codes, exit_codes);
};

/// Runs `body` on `size` ranks and checks that each passes in time.
///
/// Each rank is a process of its own, with the environment that a launcher
/// would give it: a fork of this one, or, where this one has threads or the
/// options an environment, this program started again to run the same test case
/// up to the same call. There `body` runs and the process ends, so that code
/// after the call runs in the first process only. (A test with several calls: a
/// rank of a later one passes the earlier calls, which then return nothing.)
/// What ranks share goes through a SharedFolder, not through a variable. Failed
/// assertions of a rank are shown with its output; one that hangs says where.
/// Returns how the ranks ended.
std::vector<Outcome> ranks(
    int size,
    const RankOptions& options,
    const std::function<void()>& body);
std::vector<Outcome> ranks(int size, const std::function<void()>& body);

/// The same with a group formed.
void ranks(int size, const std::function<void(ProcessGroup)>& body);

/// How many ranks a RANKS_TEST has; it runs with each of several numbers.
struct Sizes : std::vector<int> {
  Sizes(int size) : vector({size}) {}
  Sizes(std::initializer_list<int> sizes) : vector(sizes) {}
};

/// The same for a RANKS_TEST, whose ranks have a SharedFolder.
void ranks_test(
    void (*body)(ProcessGroup),
    const char* title,
    const Sizes& sizes = 3,
    const ProcessGroupOptions& options = {},
    const RankOptions& rank_options = {});

/// A test case whose body runs on each of three ranks, or of as many as are
/// given, and has their `group`. Options of both may be given too:
/// RANKS_TEST("title") {...}, RANKS_TEST("title", {3, 4}) {...}
#define RANKS_TEST(...) \
  DDP_TEST_BY(          \
      ranks_test, ([[maybe_unused]] ::ddp::ProcessGroup group), __VA_ARGS__)
/// One that `run` runs, whose body has these parameters.
#define DDP_TEST_BY(run, parameters, ...) \
  DDP_TEST_OF(C10_ANONYMOUS_VARIABLE(on_ranks_), run, parameters, __VA_ARGS__)
#define DDP_TEST_OF(body, run, parameters, ...) \
  static void body parameters;                  \
  TEST_CASE(DDP_TITLE(__VA_ARGS__, )) {         \
    ::ddp::test::run(body, __VA_ARGS__);        \
  }                                             \
  static void body parameters
#define DDP_TITLE(title, ...) title

/// The commands of the ranks that `ranks` runs, for a test that starts and ends
/// them itself. In the test's first process; in a rank of this call `body` runs
/// and the process ends, and in one of another there are none.
std::vector<Command> commands_of_ranks(
    int size,
    const std::function<void()>& body,
    const Environment& environment = {});

/// For other ways to start ranks. In the test's first process: the command that
/// runs the same test case up to this call. There `body` runs and `end` ends
/// the process with its exit code. Nothing in a rank of another call.
std::optional<Command> command_of_rank(
    const std::function<void()>& body,
    void (*end)(int));

/// Before there is a group.
inline int64_t own_rank() {
  return std::stoll(std::getenv("RANK"));
}

} // namespace ddp::test
