#include <tests/support/failures.h>

#include <ddp/process_group/collective_wait.h>
#include <ddp/process_group/uncaught.h>

namespace ddp::test::failure_test {

using std::chrono::seconds;

RANKS_TEST(
    "peers of a rank that reports a failure and lives on fail with it",
    4,
    kTimeout,
    kPrompt) {
  const auto start = Clock::now();
  if (group.rank() == 1) {
    detail::report_failure(group, "no memory for a bucket");
    REQUIRE_THAT(all_reduce_error(group), Has("this rank failed"));
  } else {
    const auto error = all_reduce_error(group);
    REQUIRE_THAT(error, Has("rank 1 of 4", "no memory for a bucket"));
    REQUIRE_THAT(
        all_reduce_error(group),
        Has("already failed", "no memory for a bucket"));
  }
  REQUIRE(seconds_since(start) < 5);
  meet_at_store(group, {"0", "1", "2", "3"});
}

RANKS_TEST(
    "an error that follows from a caught one reaches all, but is no reason",
    3,
    kTimeout,
    kPrompt) {
  const auto failing = group.duplicate();
  if (group.rank() == 1) {
    detail::report_failure(failing, "gave up");
  } else if (group.rank() == 2) {
    all_reduce_error(failing);
    detail::report_exception(); // as std::terminate() without an exception
  } else {
    const auto error = all_reduce_error(group);
    REQUIRE_THAT(
        error, Has("rank 2 of 3 on host", "failed: std::terminate was called"));
    REQUIRE_THAT(error, !Has("because"));
    const auto reason = all_reduce_error(failing);
    REQUIRE_THAT(reason, Has("because rank 1 of 3 on host", "gave up"));
    REQUIRE_THAT(reason, !Has("rank 2"));
  }
  meet_at_store(group, {"0", "1", "2"});
}

RANKS_TEST("where all ranks fail none waits for the others") {
  double fastest = 10;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const auto failing = group.duplicate();
    failing.barrier();
    const auto start = Clock::now();
    detail::report_failure(failing, "boom");
    fastest = std::min(fastest, seconds_since(start));
  }
  REQUIRE(fastest < 1.5); // 2 if no rank reads it
  meet_at_store(group, {"0", "1", "2"});
}

RANKS_TEST(
    "a failure in a duplicate leaves other groups alone",
    3,
    kTimeout,
    kPrompt) {
  const auto start = Clock::now();
  {
    const auto first = group.duplicate();
    const auto child = first.duplicate();
    if (first.rank() == 2) {
      detail::report_failure(first, "first attempt");
    } else {
      REQUIRE_THAT(all_reduce_error(first), Has("first attempt"));
      REQUIRE_THAT(all_reduce_error(child), Has("first attempt"));
    }
  }
  const auto second = group.duplicate();
  auto tensor = torch::ones({4});
  if (group.rank() == 1) { // long enough that the others check
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
  }
  second.all_reduce(tensor);
  group.all_reduce(tensor);
  REQUIRE(tensor.eq(9).all().item<bool>());
  REQUIRE(seconds_since(start) < 15);
}

TEST_CASE("a rank that is killed ends the others' waits, also indirectly") {
  for (const int killed : {1, 0}) {
    std::map<int, int> codes{{0, 3}, {1, 3}, {2, 3}, {3, 3}};
    codes[killed] = 137;
    ranks(4, RankOptions(kPrompt).exit_codes(codes), [killed] {
      const auto group = init_process_group(kTimeout);
      meet_at_store(group, {"0", "1", "2", "3"});
      if (group.rank() == killed) {
        raise(SIGKILL);
      }
      const auto error = all_reduce_error(group);
      REQUIRE_THAT(
          error, Has("all_reduce over " + group.backend() + " failed"));
      if (killed != 0) { // no rank's end helps another
        // The others' waits were too short to be published.
        REQUIRE_THAT(error, !Has("have not reached"));
        REQUIRE_THAT(
            error, Has("Check the last output of the rank that has ended"));
        meet_at_store(group, {"0", "2", "3"});
      }
      std::exit(3); // NOLINT
    });
  }
}

RANKS_TEST("a group that failed is dropped at once", 3, kTimeout, kPrompt) {
  std::optional<ProcessGroup> failing = group.duplicate();
  if (group.rank() == 1) {
    detail::report_failure(*failing, "gave up");
  } else {
    auto tensor = torch::ones({4});
    REQUIRE_THAT(
        error_of([&] { failing->all_reduce_async(tensor).wait(); }),
        Has("all_reduce_async over " + group.backend() + " failed", "gave up"));
    const auto start = Clock::now();
    failing.reset();
    REQUIRE(seconds_since(start) < 10); // not the group's timeout
  }
  // Till then rank 1 keeps its end of the connections.
  meet_at_store(group, {"0", "1", "2"});
}

RANKS_TEST(
    "a group with a collective that was left is dropped at once",
    3,
    kTimeout,
    kPrompt) {
  std::optional<ProcessGroup> left = group.duplicate();
  if (group.rank() != 1) {
    auto tensor = torch::ones({4});
    const auto start = Clock::now();
    { // as if an exception were thrown in between
      const auto work = left->all_reduce_async(tensor);
    }
    left.reset();
    REQUIRE(seconds_since(start) < 10); // not the group's timeout
  }
  meet_at_store(group, {"0", "1", "2"});
}

TEST_CASE("a process whose collectives hang ends at once") {
  for (const bool dropped : {false, true}) {
    ranks(
        3,
        RankOptions(kPrompt).exit_codes({{0, 1}, {1, 1}, {2, 1}}),
        [dropped] {
          std::optional<ProcessGroup> group = init_process_group(kTimeout);
          if (group->rank() == 2) { // keeps its connections while rank 0 lives
            detail::report_failure(*group, "gave up");
            REQUIRE_THROWS(group->store()->wait({"never"}, seconds(60)));
          } else {
            all_reduce_error(*group);
          }
          if (dropped) { // as `main` does when it returns
            group.reset();
          }
          std::exit(1); // NOLINT: a test's process ends without destructors
        });
  }
}

RANKS_TEST(
    "a group that was handed over has a failure store of its own",
    3,
    kTimeout,
    kPrompt) {
  {
    const auto base = group.duplicate();
    const auto handed = ProcessGroup::from_c10d(base.c10d());
    if (group.rank() == 1) {
      detail::report_failure(handed, "gave up");
    } else {
      REQUIRE_THAT(all_reduce_error(handed), Has("gave up"));
    }
    meet_at_store(group, {"0", "1", "2"}); // no rank ends before
  }
  group.barrier();
}

} // namespace ddp::test::failure_test
