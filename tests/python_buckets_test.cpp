#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/reducer.h>

namespace ddp::test::python_buckets_test {

// The tests of Python's DistributedDataParallel for its buckets: their sizes,
// order and times.

constexpr double kMiB = 1 << 20;

std::vector<at::Tensor> parameters(size_t count, int64_t elements) {
  std::vector<at::Tensor> result;
  for (size_t i = 0; i < count; ++i) {
    result.push_back(torch::ones({elements}, torch::requires_grad()));
  }
  return result;
}

/// Uses the last parameter last: gradients become ready in reverse order.
void backward(const std::vector<at::Tensor>& parameters) {
  auto loss = torch::zeros({}, torch::kDouble);
  for (const auto& parameter : parameters) {
    loss = loss + parameter.to(torch::kDouble).sum();
  }
  loss.backward();
}

using Sizes = std::pair<std::vector<size_t>, std::vector<size_t>>;

std::vector<size_t> sizes(const Reducer& reducer) {
  std::vector<size_t> result;
  for (const auto& bucket : reducer.buckets()) {
    result.push_back(bucket.size());
  }
  return result;
}

/// The number of parameters per bucket, in the first backward and after it.
Sizes sizes_of(
    const ProcessGroup& group,
    const std::vector<at::Tensor>& parameters,
    const ReducerOptions& options) {
  Reducer reducer(parameters, group, options);
  const auto initial = sizes(reducer);
  backward(parameters);
  return {initial, sizes(reducer)};
}

RANKS_TEST("a bucket closes at its cap to the byte") {
  const auto five = parameters(5, 100); // of 400 bytes
  const auto with_cap = [&](double bytes) {
    return sizes_of(group, five, ReducerOptions().bucket_cap_mb(bytes / kMiB));
  };
  REQUIRE(with_cap(400) == Sizes{{5}, {1, 1, 1, 1, 1}});
  REQUIRE(with_cap(401) == Sizes{{5}, {2, 2, 1}});
  REQUIRE(with_cap(800) == Sizes{{5}, {2, 2, 1}});
  REQUIRE(with_cap(801) == Sizes{{5}, {3, 2}});
  // The first bucket's own cap.
  REQUIRE(
      sizes_of(
          group,
          five,
          ReducerOptions()
              .first_bucket_cap_mb(400 / kMiB)
              .bucket_cap_mb(801 / kMiB)) == Sizes{{5}, {1, 3, 1}});
  // In the first backward, buckets are in reverse order.
  REQUIRE(
      sizes_of(
          group,
          five,
          ReducerOptions().bucket_cap_mb_list({400 / kMiB, 800 / kMiB})) ==
      Sizes{{2, 2, 1}, {1, 2, 2}});
}

RANKS_TEST("the default caps are 1 MiB for the first bucket and 25 MiB") {
  const int64_t mebibyte = (1 << 20) / 4;
  REQUIRE(
      sizes_of(group, parameters(27, mebibyte), {}) == Sizes{{27}, {1, 25, 1}});
  // Each has four bytes less, so a bucket needs one more to reach its cap.
  REQUIRE(
      sizes_of(group, parameters(29, mebibyte - 1), {}) ==
      Sizes{{29}, {2, 26, 1}});
}

RANKS_TEST(
    "find_unused_parameters never rebuilds, static_graph does, and both train "
    "alike") {
  torch::manual_seed(5);
  auto unused = std::make_shared<BranchNet>();
  auto fixed = std::make_shared<BranchNet>();
  copy_parameters(*unused, *fixed);
  Reducer of_unused(
      unused, group, ReducerOptions().find_unused_parameters(true));
  Reducer of_fixed(fixed, group, ReducerOptions().static_graph(true));
  const auto initial = of_unused.buckets();
  REQUIRE(of_fixed.buckets() == initial);
  torch::optim::SGD optimizer(unused->parameters(), 0.01);
  torch::optim::SGD fixed_optimizer(fixed->parameters(), 0.01);
  for (int step = 0; step < 10; ++step) {
    const auto input = batch(group, step, 4);
    const bool left = group.rank() == 0; // another graph on other ranks
    optimizer.zero_grad();
    fixed_optimizer.zero_grad();
    unused->forward(input, left).pow(2).sum().backward();
    fixed->forward(input, left).pow(2).sum().backward();
    optimizer.step();
    fixed_optimizer.step();
    REQUIRE(of_unused.buckets() == initial); // never rebuilt
    REQUIRE((of_fixed.buckets() == initial) == (step == 0));
  }
  for (size_t i = 0; i < 6; ++i) {
    const auto parameter = unused->parameters()[i];
    REQUIRE(parameter.isfinite().all().item<bool>());
    REQUIRE(torch::allclose(parameter, fixed->parameters()[i], 1e-5, 1e-5));
    REQUIRE(equal_on_all(group, parameter));
  }
}

RANKS_TEST("the timeline has each bucket's bytes, and its times in order") {
  auto mixed = parameters(4, 100);
  mixed.push_back(torch::ones({30}, torch::kDouble).requires_grad_());
  Reducer reducer(
      mixed, group, ReducerOptions().record(true).bucket_cap_mb(800 / kMiB));
  REQUIRE(reducer.timeline().buckets.empty());
  for (int64_t step = 1; step <= 3; ++step) {
    backward(mixed);
    std::vector<int64_t> bytes;
    auto timeline = reducer.timeline();
    const auto done = [&] {
      const auto& buckets = timeline.buckets;
      return std::all_of(buckets.begin(), buckets.end(), [](auto& bucket) {
        return bucket.done.has_value();
      });
    };
    while (!done()) { // set by the communicating thread
      timeline = reducer.timeline();
    }
    REQUIRE(timeline.step == step);
    auto before = BucketTimes::Duration::zero();
    for (const auto& bucket : timeline.buckets) {
      bytes.push_back(bucket.bytes);
      REQUIRE(bucket.ready.value() >= BucketTimes::Duration::zero());
      REQUIRE(bucket.ready.value() <= bucket.launched.value());
      REQUIRE(bucket.launched.value() <= bucket.done.value());
      REQUIRE(bucket.launched.value() >= before);
      before = *bucket.launched;
    }
    REQUIRE(
        bytes ==
        (step == 1 ? std::vector<int64_t>{240, 1600}
                   : std::vector<int64_t>{800, 800, 240}));
    const auto count = std::to_string(timeline.buckets.size());
    REQUIRE(
        timeline.last_collective ==
        "bucket " + count + " of " + count + ", step " + std::to_string(step));
  }
  Reducer silent(parameters(1, 3), group);
  REQUIRE(silent.timeline().buckets.empty());
}

RANKS_TEST("each bucket is launched before backward ends, from the second on") {
  auto net = std::make_shared<UnevenNet>();
  Reducer reducer(
      net, group, ReducerOptions().record(true).bucket_cap_mb(1e-6));
  net->forward(batch(group, 0, 7)).sum().backward();
  // The last layers' buckets are launched before the first layer's gradient.
  size_t launched = 0;
  net->first->weight.register_hook([&](const at::Tensor&) {
    for (const auto& bucket : reducer.timeline().buckets) {
      launched += bucket.launched ? 1 : 0;
    }
  });
  net->forward(batch(group, 1, 7)).sum().backward();
  REQUIRE(reducer.buckets().size() == 6);
  REQUIRE(launched >= 4); // all of the layers above
  REQUIRE(equal_on_all(group, net->first->weight.grad()));
}

RANKS_TEST("a cap may be infinite") {
  auto net = std::make_shared<BranchNet>();
  for (const double cap : {1e30, double(INFINITY)}) {
    Reducer reducer(net, group, ReducerOptions().bucket_cap_mb(cap));
    net->forward(torch::ones({1, 4}), true).sum().backward();
    REQUIRE(reducer.buckets().size() == 1);
  }
}

RANKS_TEST("the timeline takes in parameters that are unfrozen") {
  auto net = std::make_shared<BranchNet>();
  net->left->weight.set_requires_grad(false);
  Reducer reducer(net, group, ReducerOptions().record(true));
  for (int step = 0; step < 3; ++step) {
    net->left->weight.set_requires_grad(step > 0);
    net->forward(batch(group, step, 4), true).sum().backward();
    const auto timeline = reducer.timeline();
    REQUIRE(timeline.step == step + 1);
    REQUIRE(timeline.buckets.back().launched.has_value());
    REQUIRE(timeline.buckets.size() == (step > 0 ? 2 : 1));
  }
}

} // namespace ddp::test::python_buckets_test
