// A rank that is stopped, but not ended, during collectives.
#include <tests/support/failures.h>

namespace ddp::test::stopped_rank_test {

using std::chrono::seconds;

/// Rank 2 stops before its `call` and continues once the others have failed.
void check_stopped(
    const ProcessGroup& group,
    const std::function<void()>& call) {
  call();
  const auto processes = group.all_gather(std::to_string(getpid()));
  if (group.rank() == 2) {
    raise(SIGSTOP);
    // Over shared memory, all have already contributed to its first call.
    REQUIRE_THROWS_AS((call(), call()), c10::DistBackendError);
  } else {
    const auto start = Clock::now();
    const auto error = error_of(call);
    REQUIRE_THAT(error, Has("timed out after 5 s", "rank 2 has not reached "));
    REQUIRE_THAT(error, !Has("rank 1 has not reached"));
    REQUIRE(seconds_since(start) < 15);
    meet_at_store(group, {"0", "1"});
    if (group.rank() == 0) {
      kill(std::stoi(processes[2]), SIGCONT);
    }
  }
  meet_at_store(group, {"0", "1", "2"});
}

void check_stopped(const ProcessGroup& group) {
  check_stopped(group, [&] {
    auto tensor = torch::ones({1 << 16});
    group.all_reduce(tensor);
    REQUIRE(tensor[0].item<int64_t>() == group.size());
  });
}

RANKS_TEST(
    "over gloo a rank that is stopped is named by those that wait for it",
    3,
    ProcessGroupOptions().backend("gloo").timeout(seconds(5)),
    kPrompt) {
  check_stopped(group);
}

RANKS_TEST(
    "over shared memory a rank that is stopped is named likewise",
    3,
    ProcessGroupOptions().backend("shm").timeout(seconds(5)),
    kPrompt) {
  check_stopped(group);
}

RANKS_TEST(
    "a rank that is stopped for less than the timeout does no harm",
    3,
    kTimeout,
    kPrompt) {
  const auto processes = group.all_gather(std::to_string(getpid()));
  if (group.rank() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(std::stoi(processes[2]), SIGSTOP);
    std::this_thread::sleep_for(seconds(2));
    kill(std::stoi(processes[2]), SIGCONT);
  }
  auto tensor = torch::ones({1 << 16});
  for (int i = 0; i < 3; ++i) {
    group.all_reduce(tensor);
  }
  REQUIRE(tensor.eq(27).all().item<bool>());
}

} // namespace ddp::test::stopped_rank_test
