// Batch norm over a part of the ranks, in half precision, and on one rank.
#include <tests/support/batch_norm.h>
#include <tests/support/ranks.h>

#include <ddp/ddp.h>

namespace ddp::test::sync_batch_norm_groups_test {

using torch::nn::BatchNormOptions;
using torch::nn::Sequential;
using Rows = std::vector<int64_t>;

/// Trains `net` on this rank's rows, and a net of one process on all rows of
/// its part.
void compare(
    const ProcessGroup& part,
    Sequential net,
    int64_t first_step,
    int64_t steps) {
  const Rows rows{3, 5};
  Sequential alone(torch::nn::BatchNorm1d(4));
  net->to(torch::kDouble);
  alone->to(torch::kDouble);
  Reducer reducer(net, part);
  for (int64_t step = first_step; step < first_step + steps; ++step) {
    const auto whole = whole_batch(step, sum_of(rows), {4});
    net->zero_grad();
    alone->zero_grad();
    const auto output = net->forward(part_of(whole, rows, part));
    const auto expected = alone->forward(whole);
    require_close(output, part_of(expected, rows, part));
    output.exp().sum().backward();
    expected.exp().sum().backward();
    require_trained_alike(part, *net, *alone);
  }
}

RANKS_TEST("parts of the ranks normalise batches of their own", 4) {
  const auto half = group.split(group.rank() / 2);
  const bool first = group.rank() < 2;
  // Other batches and another number of steps: a common group would hang.
  const int64_t begin = first ? 0 : 10, steps = first ? 2 : 4;
  compare(
      half,
      Sequential(SyncBatchNorm1d(BatchNormOptions(4), half)),
      begin,
      steps);
  Sequential converted(torch::nn::BatchNorm1d(4));
  convert_sync_batchnorm(converted, half);
  compare(half, converted, begin, steps);
  group.barrier(); // rank 0 has the store by which the others connect
}

RANKS_TEST("a synchronised batch-norm may be in half precision itself") {
  const Rows rows{3, 5, 2};
  for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
    SyncBatchNorm1d norm(BatchNormOptions(4), group);
    torch::nn::BatchNorm1d alone(BatchNormOptions(4));
    norm->to(dtype);
    alone->to(torch::kDouble);
    // Values that both have.
    const auto whole = whole_batch(0, sum_of(rows), {4}).to(dtype);
    const auto factors = torch::randn({sum_of(rows), 4}).to(dtype);
    const auto close = [&](const torch::Tensor& actual,
                           const torch::Tensor& expected) {
      REQUIRE(actual.scalar_type() == dtype);
      const double tolerance = dtype == torch::kHalf ? 1e-2 : 6e-2;
      require_close(actual.to(torch::kDouble), expected, tolerance);
    };
    auto input = part_of(whole, rows, group).clone().requires_grad_();
    auto all = whole.to(torch::kDouble).requires_grad_();
    const auto output = norm(input);
    const auto expected = alone(all);
    (output * part_of(factors, rows, group)).sum().backward();
    (expected * factors).sum().backward();
    close(output.detach(), part_of(expected.detach(), rows, group));
    close(input.grad(), part_of(all.grad(), rows, group));
    auto bias = norm->bias.grad().clone();
    group.all_reduce(bias);
    close(bias, alone->bias.grad());
    close(norm->running_mean, alone->running_mean);
    close(norm->running_var, alone->running_var);
  }
}

RANKS_TEST("rank 0 evaluates alone where batch-norm tracks no statistics") {
  const auto options = BatchNormOptions(2).track_running_stats(false);
  DistributedDataParallel<SyncBatchNorm2d> model(
      SyncBatchNorm2d(options, group), group);
  torch::nn::BatchNorm2d alone(options);
  const auto train = [&](int64_t step) {
    model->train();
    const auto batch = whole_batch(step + group.rank(), 3, {2, 4, 4});
    model->forward(batch.to(torch::kFloat)).exp().sum().backward();
  };
  train(0);
  if (group.rank() == 0) {
    model->eval();
    alone->eval();
    for (int64_t step = 0; step < 3; ++step) { // with gradients enabled
      const auto batch = whole_batch(step, 4, {2, 4, 4}).to(torch::kFloat);
      require_close(model->forward(batch), alone(batch), 1e-5);
    }
  }
  train(1); // the ranks still work
  group.barrier();
}

} // namespace ddp::test::sync_batch_norm_groups_test
