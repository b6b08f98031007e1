#include <tests/support/comm_hooks.h>
#include <tests/support/launched.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/ddp.h>

namespace ddp::test::statistics_test {

// A Reducer's statistics, checked like Python's logging data in its tests.

using Sizes = std::vector<int64_t>;

/// Checks that the times of this rank are possible: each is set, and an overlap
/// is no longer than its parts.
void check_times(const Statistics& s, bool forward) {
  REQUIRE(s.forward_compute_time.has_value() == forward);
  REQUIRE(s.avg_forward_compute_time.has_value() == forward);
  if (forward) {
    REQUIRE(s.forward_compute_time->count() >= 1);
    REQUIRE(s.avg_forward_compute_time->count() >= 1);
  }
  REQUIRE(s.backward_compute_time.count() >= 1);
  REQUIRE(s.backward_comm_time.count() >= 1);
  REQUIRE(s.backward_compute_comm_overlap_time.count() >= 0);
  REQUIRE(s.backward_compute_time >= s.backward_compute_comm_overlap_time);
  REQUIRE(s.backward_comm_time >= s.backward_compute_comm_overlap_time);
  REQUIRE(s.avg_backward_compute_time.count() >= 1);
  REQUIRE(s.avg_backward_comm_time.count() >= 1);
  REQUIRE(
      s.avg_backward_compute_time >= s.avg_backward_compute_comm_overlap_time);
  REQUIRE(s.avg_backward_comm_time >= s.avg_backward_compute_comm_overlap_time);
}

RANKS_TEST(
    "statistics of the wrapper are sampled, and its times possible",
    {3, 4}) {
  DistributedDataParallel<UnevenNet> model(
      std::make_shared<UnevenNet>(), group, ReducerOptions().sample_rate(4));
  auto& reducer = model->reducer();
  const auto at_first = reducer.statistics();
  REQUIRE(at_first.iteration == 0);
  REQUIRE(at_first.num_timed == 0);
  REQUIRE(!at_first.has_rebuilt_buckets);
  REQUIRE(at_first.bucket_sizes.size() == 1);
  REQUIRE(at_first.rebuilt_bucket_sizes.empty());
  // The first ten steps, then every fourth.
  const std::set<int64_t> timed{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16};
  int64_t count = 0;
  auto before = Statistics();
  for (int64_t step = 1; step <= 17; ++step) {
    model->forward(batch(group, step, 7)).sum().backward();
    const auto now = reducer.statistics();
    count += static_cast<int64_t>(timed.count(step));
    REQUIRE(now.iteration == step);
    REQUIRE(now.num_timed == count);
    check_times(now, /*forward=*/true);
    if (timed.count(step) == 0) {
      REQUIRE(now.backward_compute_time == before.backward_compute_time);
      REQUIRE(now.avg_backward_comm_time == before.avg_backward_comm_time);
    }
    if (step == 1) { // a mean of one
      REQUIRE(now.avg_backward_comm_time == now.backward_comm_time);
      REQUIRE(now.avg_forward_compute_time == now.forward_compute_time);
    }
    if (step == 2) {
      REQUIRE(
          std::abs(
              2 * now.avg_backward_compute_time.count() -
              before.backward_compute_time.count() -
              now.backward_compute_time.count()) <= 2);
    }
    before = now;
  }
}

RANKS_TEST("statistics tell sizes, order, hook and what was unused") {
  auto net = std::make_shared<BranchNet>();
  net->never->bias.set_requires_grad(false);
  Reducer reducer(
      net,
      group,
      with_hook(custom([](const GradBucket& bucket, const ProcessGroup& own) {
        return sum(bucket.buffer, own);
      })).bucket_cap_mb(1e-6));
  const Sizes all{4 * (40 + 18 + 18 + 16)};
  REQUIRE(reducer.statistics().bucket_sizes == all);
  // Rank 0 goes right, the others left.
  net->forward(batch(group, 0, 4), group.rank() != 0).sum().backward();
  const auto first = reducer.statistics();
  REQUIRE(first.num_parameter_tensors == 7);
  REQUIRE(first.total_parameter_size_bytes == all[0]);
  REQUIRE(first.comm_hook.find("CustomHook") != std::string::npos);
  REQUIRE(first.has_rebuilt_buckets);
  REQUIRE(first.bucket_sizes == all);
  REQUIRE(first.num_buckets_reduced == 1);
  REQUIRE(first.rebuilt_bucket_sizes.size() == 7);
  REQUIRE(first.rebuilt_per_bucket_param_indices == reducer.buckets());
  // One branch, and the one that no rank takes.
  REQUIRE(first.unused_parameter_size == 4 * (18 + 16));
  const auto order = first.prev_iteration_grad_ready_order_indices;
  const std::set<size_t> came(order.begin(), order.end());
  const auto branch = group.rank() != 0 ? std::set<size_t>{0, 1, 2, 3}
                                        : std::set<size_t>{0, 1, 4, 5};
  REQUIRE(order.size() == 4);
  REQUIRE(came == branch);
  REQUIRE(std::set<size_t>(order.begin(), order.begin() + 2).count(0) == 0);
  check_times(first, /*forward=*/false);

  net->forward(batch(group, 1, 4), true).sum().backward();
  const auto second = reducer.statistics();
  REQUIRE(second.num_buckets_reduced == 7);
  REQUIRE(second.unused_parameter_size == 4 * (18 + 16));
  check_times(second, /*forward=*/false);

  // Neither a forward alone nor a backward under no_sync counts.
  net->forward(batch(group, 2, 4), true);
  REQUIRE(reducer.statistics().iteration == 2);
  {
    const auto guard = reducer.no_sync();
    net->forward(batch(group, 3, 4), true).sum().backward();
  }
  REQUIRE(reducer.statistics().num_timed == 2);
}

RANKS_TEST("buckets that are not laid out anew say so") {
  auto net = std::make_shared<UnevenNet>();
  Reducer reducer(net, group, ReducerOptions().find_unused_parameters(true));
  for (int step = 0; step < 2; ++step) {
    net->forward(batch(group, step, 7)).sum().backward();
    const auto now = reducer.statistics();
    REQUIRE(!now.has_rebuilt_buckets);
    REQUIRE(now.bucket_sizes.size() > 1);
    REQUIRE(now.rebuilt_bucket_sizes.empty());
    REQUIRE(now.rebuilt_per_bucket_param_indices.empty());
  }
}

TEST_CASE("a group of one has statistics of nothing") {
  torch::nn::Linear net(2, 1);
  Reducer reducer(net, ProcessGroup());
  net->forward(torch::ones({1, 2})).sum().backward();
  const auto statistics = reducer.statistics();
  CHECK(statistics.iteration == 0);
  CHECK(statistics.bucket_sizes.empty());
  CHECK(reducer.parameters().size() == 2);
  CHECK(reducer.parameters()[0].is_same(net->weight));
}

TEST_CASE("a sample rate below 1 is refused") {
  torch::nn::Linear net(2, 1);
  CHECK_THROWS_WITH(
      Reducer(net, ProcessGroup(), ReducerOptions().sample_rate(0)),
      Has("sample_rate is 0, expected 1 or more"));
}

TEST_CASE("sizes and orders are those of Python's logging data") {
  const char* known = std::getenv("DDP_TEST_EXPECTED"); // in a rank's process
  const std::string expected =
      known ? known : python_output({parity_program("logging_data.py")});
  ranks(3, RankOptions().environment({{"DDP_TEST_EXPECTED", expected}}), [&] {
    const auto group = init_process_group();
    DistributedDataParallel<UnevenNet> model(
        std::make_shared<UnevenNet>(),
        group,
        ReducerOptions().bucket_cap_mb(1));
    for (int step = 0; step < 3; ++step) {
      model->forward(batch(group, step, 7)).sum().backward();
    }
    const auto s = model->reducer().statistics();
    const auto& order = s.prev_iteration_grad_ready_order_indices;
    std::vector<std::string> indices;
    for (const auto& bucket : s.rebuilt_per_bucket_param_indices) {
      indices.push_back(c10::Join(" ", bucket));
    }
    const auto text = [](const auto& list) { return c10::Join(", ", list); };
    std::ostringstream ours;
    ours << "bucket_sizes " << text(s.bucket_sizes) << "\nrebuilt_bucket_sizes "
         << text(s.rebuilt_bucket_sizes)
         << "\nrebuilt_per_bucket_param_indices " << text(indices)
         << "\nprev_iteration_grad_ready_order_indices " << text(order)
         << "\nhas_rebuilt_buckets " << s.has_rebuilt_buckets
         << "\nnum_parameter_tensors " << s.num_parameter_tensors
         << "\ntotal_parameter_size_bytes " << s.total_parameter_size_bytes
         << "\nunused_parameter_size " << s.unused_parameter_size
         << "\nnum_buckets_reduced " << s.num_buckets_reduced << "\niteration "
         << s.iteration << "\n";
    REQUIRE(ours.str() == expected);
  });
}

} // namespace ddp::test::statistics_test
