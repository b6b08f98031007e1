// Buckets that are cut from measured times.
#include <tests/support/ranks.h>
#include <tests/support/twins.h>

#include <ddp/reducer/observers/measured_layout.h>

namespace ddp::test::measured_layout_test {

using detail::cut_by_time;
using detail::ReductionCost;
using detail::TimedGradient;

/// The time at which the last reduction ends with the buckets of `counts`.
double end_of_reductions(
    const std::vector<TimedGradient>& gradients,
    const std::vector<size_t>& counts,
    const ReductionCost& cost) {
  double end = 0;
  auto next = gradients.begin();
  for (const size_t count : counts) {
    std::set<size_t> kinds;
    int64_t bytes = 0;
    double ready = 0;
    for (size_t i = 0; i < count; ++i, ++next) {
      kinds.insert(next->kind);
      bytes += next->bytes;
      ready = next->ready;
    }
    end = std::max(end, ready) +
        static_cast<double>(kinds.size()) * cost.latency +
        static_cast<double>(bytes) * cost.per_byte;
  }
  return end;
}

/// The earliest end, and the smallest number of buckets for it, by trying every
/// cut.
std::pair<double, size_t> best_of_all(
    const std::vector<TimedGradient>& gradients,
    const ReductionCost& cost) {
  std::pair<double, size_t> best{1e300, 0};
  const size_t places = gradients.size() - 1;
  for (size_t mask = 0; mask < (size_t{1} << places); ++mask) {
    std::vector<size_t> counts{1};
    for (size_t i = 0; i < places; ++i) {
      if ((mask >> i) & 1) {
        counts.push_back(1);
      } else {
        ++counts.back();
      }
    }
    best = std::min(
        best, {end_of_reductions(gradients, counts, cost), counts.size()});
  }
  return best;
}

ReducerOptions measured() {
  return ReducerOptions().bucket_layout(BucketLayout::kMeasured);
}

/// The number of backwards after which buckets are final, as the header states.
constexpr int64_t kSettled = 16;

struct Run : Twins<UnevenNet> {
  using Twins::Twins;

  void train(int64_t steps) {
    for (const int64_t end = step + steps; step < end; ++step) {
      const auto input = batch(group, step, 7);
      reset();
      backward([&](auto& each) { return each.forward(input).pow(2).mean(); });
      check();
      for (const auto& parameter : net->parameters()) {
        REQUIRE(equal_on_all(group, parameter.grad()));
      }
    }
  }

  int64_t step = 0;
};

std::string text_of(const std::vector<BucketIndices>& buckets) {
  std::string text;
  for (const auto& bucket : buckets) {
    text += c10::str(bucket, ";");
  }
  return text;
}

TEST_CASE("the cut is the best there is, to one percent") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<TimedGradient> gradients(1 + random() % 9);
    double time = 0;
    for (auto& gradient : gradients) {
      time += static_cast<double>(random() % 10);
      gradient = {time, static_cast<int64_t>(random() % 20), random() % 2};
    }
    const ReductionCost cost{
        static_cast<double>(random() % 4),
        static_cast<double>(random() % 3) / 4};
    const auto counts = cut_by_time(gradients, cost);
    REQUIRE(
        std::accumulate(counts.begin(), counts.end(), size_t{0}) ==
        gradients.size());
    const auto [end, buckets] = best_of_all(gradients, cost);
    CHECK(
        end_of_reductions(gradients, counts, cost) <=
        end * (1 + detail::kSlack) + 1e-9);
    CHECK(counts.size() <= buckets);
  }
  CHECK(cut_by_time({}, {}).empty());
}

TEST_CASE("the last bucket is small where reductions keep up") {
  // Ten gradients of 1 MB, one each ms; a reduction takes 0.1 ms and 0.5 ms/MB.
  std::vector<TimedGradient> gradients;
  for (int i = 0; i < 10; ++i) {
    gradients.push_back({1e-3 * i, 1 << 20, 0});
  }
  const auto counts = cut_by_time(gradients, {1e-4, 0.5e-3 / (1 << 20)});
  CHECK(counts.back() == 1);
  CHECK(counts.size() < 10);
}

RANKS_TEST(
    "measured buckets average, are the same on all ranks, and settle",
    {3, 4}) {
  for (const auto& options :
       {measured(),
        measured().bucket_cap_mb(0.01),
        measured().static_graph(true),
        measured().find_unused_parameters(true)}) {
    Run run(group, options);
    run.train(kSettled);
    const auto settled = run.reducer.buckets();
    std::vector<size_t> all;
    for (const auto& bucket : settled) {
      all.insert(all.end(), bucket.begin(), bucket.end());
    }
    std::sort(all.begin(), all.end());
    REQUIRE(all == std::vector<size_t>{0, 1, 2, 3, 4, 5});
    for (const auto& text : group.all_gather(text_of(settled))) {
      REQUIRE(text == text_of(settled));
    }
    const auto state = run.reducer.state_dict().deepcopy();
    run.train(4);
    REQUIRE(run.reducer.buckets() == settled);
    REQUIRE(run.reducer.timeline().buckets.empty());

    Run resumed(group, options);
    resumed.reducer.load_state_dict(state);
    REQUIRE(resumed.reducer.buckets() == settled);
    resumed.train(kSettled + 4);
    REQUIRE(resumed.reducer.buckets() == settled);
  }
}

RANKS_TEST("parameters that are unfrozen end the measuring") {
  auto net = std::make_shared<UnevenNet>();
  net->first->weight.set_requires_grad(false);
  Reducer reducer(net, group, measured());
  for (int64_t step = 0; step < kSettled + 2; ++step) {
    if (step == 5) {
      net->first->weight.set_requires_grad(true);
    }
    reset_gradients(*net);
    net->forward(batch(group, step, 7)).pow(2).mean().backward();
    for (const auto& parameter : net->parameters()) {
      if (parameter.requires_grad()) {
        REQUIRE(equal_on_all(group, parameter.grad()));
      }
    }
  }
}

} // namespace ddp::test::measured_layout_test
