#include <tests/support/failures.h>
#include <tests/support/gpus.h>

#include <ddp/process_group/collective_wait.h>
#include <ddp/reducer.h>

namespace ddp::test::gpu_failure_test {

/// Trains until it throws; the text. `before` is called before each step.
std::string train_until_failure(
    const ProcessGroup& group,
    const std::function<void(int)>& before) {
  auto net = net_on_gpu(group);
  Reducer reducer(net, group);
  try {
    for (int step = 0; step < 100000; ++step) {
      before(step);
      net->zero_grad();
      const auto loss = net->forward(torch::randn({16, 7}, group.device()));
      loss.sum().backward();
      net->parameters().front().grad().sum().item(); // waits for the GPU
    }
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

/// Trains until rank `killed` is killed in its sixth step, and checks that the
/// others' end soon, with a reason.
void check_killed(const ProcessGroup& group, int64_t killed) {
  auto start = Clock::now();
  const auto error = train_until_failure(group, [&](int step) {
    if (step == 5 && group.rank() == killed) {
      std::raise(SIGKILL);
    }
    start = step <= 5 ? Clock::now() : start;
  });
  REQUIRE(!error.empty());
  REQUIRE(seconds_since(start) < 30);
}

// Over sockets: NCCL does not notice the end of a process of its own host.
GPU_TEST(
    "a rank over NCCL is killed: the others end with a reason",
    3,
    kTimeout,
    {{1, 128 + SIGKILL}}) {
  setenv("NCCL_P2P_DISABLE", "1", /*overwrite=*/1);
  setenv("NCCL_SHM_DISABLE", "1", /*overwrite=*/1);
  check_killed(group, 1);
  meet_at_store(group, {"0", "2"});
}

GPU_TEST(
    "rank 0 over NCCL is killed: the others end with a reason",
    3,
    kTimeout,
    {{0, 128 + SIGKILL}}) {
  check_killed(group, 0);
}

GPU_TEST(
    "what a rank over NCCL throws reaches those that wait on a GPU",
    3,
    kTimeout,
    {}) {
  const auto start = Clock::now();
  const auto error = train_until_failure(group, [&](int step) {
    if (step == 5 && group.rank() == 1) {
      detail::report_failure(group, "boom in forward");
      throw std::runtime_error("boom in forward");
    }
  });
  REQUIRE_THAT(error, Has("boom in forward"));
  REQUIRE(seconds_since(start) < 30);
  meet_at_store(group, {"0", "1", "2"});
}

GPU_TEST(
    "a collective over NCCL that times out says where its record is",
    2,
    ProcessGroupOptions().timeout(std::chrono::seconds(15))) {
  auto tensor = torch::ones({8}, group.device());
  group.all_reduce(tensor); // connects the ranks
  if (group.rank() == 0) {
    group.all_reduce(tensor);
    tensor.sum().item(); // returns when the watch has aborted it
    REQUIRE_THROWS_WITH(
        group.all_reduce(tensor),
        Has("was not complete after 15 s", "flight record of rank 0"));
  }
  meet_at_store(group, {"0", "1"});
}

GPU_TEST(
    "a first collective over NCCL that others do not come to times out",
    2,
    ProcessGroupOptions().timeout(std::chrono::seconds(10))) {
  if (group.rank() == 0) {
    auto tensor = torch::ones({8}, group.device());
    REQUIRE_THROWS_WITH(
        group.all_reduce(tensor),
        Has("timed out after 10 s", "rank 1 has not come to all_reduce"));
  }
  meet_at_store(group, {"0", "1"});
}

} // namespace ddp::test::gpu_failure_test
