// The places at which a state is saved, and nested loops.
#include <ddp/samplers/distributed_sampler.h>
#include <tests/support/samplers.h>

namespace ddp::test::sampler_stops_test {

constexpr int64_t kWorld = 3;

std::vector<Indices> batches_after(
    DistributedSampler sampler,
    const State& state) {
  sampler.load_state_dict(state);
  sampler.set_epoch(sampler.epoch()); // as a loop does
  std::vector<Indices> batches;
  const auto loader = torch_loader(sampler, 4, 2);
  for (auto& batch : *loader) {
    batches.push_back(batch);
  }
  return batches;
}

TEST_CASE("a state saved before advance brings the whole batch again") {
  constexpr size_t kSize = 60;
  for (const size_t workers : {0, 2}) {
    for (int64_t rank = 0; rank < kWorld; ++rank) {
      DistributedSampler sampler(kSize, kWorld, rank);
      const DistributedSampler fresh(kSize, kWorld, rank);
      auto loader = torch_loader(sampler, 4, workers);
      for (int64_t epoch = 0; epoch < 2; ++epoch) {
        sampler.set_epoch(epoch);
        std::vector<Indices> batches;
        std::vector<State> before, after;
        for (auto& batch : *loader) {
          batches.push_back(batch);
          if (epoch > 0 || batches.size() > 1) { // advance was called
            before.push_back(sampler.state_dict());
          }
          sampler.advance(batch.size());
          after.push_back(sampler.state_dict());
        }
        REQUIRE(batches.size() == 5);
        const auto rest = [&](size_t first) {
          return std::vector<Indices>(
              batches.begin() + static_cast<ptrdiff_t>(first), batches.end());
        };
        for (size_t i = 0; i < batches.size(); ++i) {
          INFO("batch " << i << " of epoch " << epoch);
          REQUIRE(batches_after(fresh, after[i]) == rest(i + 1));
        }
        const auto skipped = batches.size() - before.size();
        for (size_t i = 0; i < before.size(); ++i) {
          REQUIRE(batches_after(fresh, before[i]) == rest(i + skipped));
        }
      }
    }
  }
}

/// One optimizer step for every three batches.
struct Accumulating {
  static constexpr int kMicroBatches = 3;

  explicit Accumulating(bool advances) : advances_each_batch(advances) {}

  /// Runs at most `batches` batches of the epoch.
  void run(int batches) {
    const auto loader = torch_loader(sampler, 2, 2);
    for (auto& batch : *loader) {
      if (batches-- == 0) {
        break;
      }
      order.insert(order.end(), batch.begin(), batch.end());
      for (const auto index : batch) {
        gradient += (weight - static_cast<double>(index)) / kMicroBatches;
      }
      waiting += batch.size();
      const bool is_step = ++micro_batches == kMicroBatches;
      if (is_step) {
        weight -= 0.01 * gradient;
        gradient = 0;
        micro_batches = 0;
      }
      if (is_step || advances_each_batch) {
        sampler.advance(waiting);
        waiting = 0;
      }
    }
  }

  bool advances_each_batch;
  DistributedSampler sampler{120, kWorld, 1};
  double weight = 0, gradient = 0;
  int micro_batches = 0;
  size_t waiting = 0;
  Indices order;
};

/// A run that stops one batch into its third step, resumed by another run.
Accumulating stopped_and_resumed(
    bool advances_each_batch,
    bool keeps_gradient) {
  Accumulating stopped(advances_each_batch), resumed(advances_each_batch);
  stopped.run(2 * Accumulating::kMicroBatches + 1);
  resumed.sampler.load_state_dict(stopped.sampler.state_dict());
  resumed.weight = stopped.weight;
  resumed.order = stopped.order;
  if (keeps_gradient) {
    resumed.gradient = stopped.gradient;
    resumed.micro_batches = stopped.micro_batches;
  }
  resumed.run(100);
  return resumed;
}

TEST_CASE("a state saved amid accumulation: with the gradients, or by steps") {
  Accumulating whole(true);
  whole.run(100);
  REQUIRE(whole.order.size() == 40);
  {
    const auto resumed = stopped_and_resumed(true, true);
    REQUIRE(resumed.weight == whole.weight);
    REQUIRE(resumed.order == whole.order);
  }
  { // Advanced by steps: all batches of the step are repeated.
    const auto resumed = stopped_and_resumed(false, false);
    REQUIRE(resumed.weight == whole.weight);
    Indices expected(whole.order.begin(), whole.order.begin() + 14);
    expected.insert(
        expected.end(), whole.order.begin() + 12, whole.order.end());
    REQUIRE(resumed.order == expected);
  }
  { // Neither: the accumulated gradients are lost.
    const auto resumed = stopped_and_resumed(true, false);
    REQUIRE(resumed.weight != whole.weight);
    REQUIRE(resumed.order == whole.order);
  }
}

TEST_CASE("an epoch inside another one has a sampler of its own") {
  for (const size_t workers : {0, 2}) {
    DistributedSampler outer(60, kWorld, 0), inner(60, kWorld, 0);
    auto outer_loader = torch_loader(outer, 4, workers);
    auto inner_loader = torch_loader(inner, 3, workers);
    size_t outer_done = 0;
    int64_t inner_epoch = 0;
    Indices seen;
    for (auto& batch : *outer_loader) {
      size_t inner_done = 0;
      inner.set_epoch(inner_epoch++);
      for (auto& inner_batch : *inner_loader) {
        inner.advance(inner_batch.size());
        inner_done += 3 * inner_batch.size();
        REQUIRE(
            static_cast<size_t>(
                inner.state_dict()["samples_done"].item<int64_t>()) ==
            inner_done);
      }
      REQUIRE(inner_done == 60);
      outer.advance(batch.size());
      outer_done += 3 * batch.size();
      REQUIRE(
          static_cast<size_t>(
              outer.state_dict()["samples_done"].item<int64_t>()) ==
          outer_done);
      seen.insert(seen.end(), batch.begin(), batch.end());
    }
    REQUIRE(outer.epoch() == 0);
    REQUIRE(inner_epoch == 5);
    DistributedSampler alone(60, kWorld, 0);
    REQUIRE(seen == drain(alone));
  }
}

TEST_CASE("one sampler in a loop and in a loop inside it is refused") {
  for (const size_t workers : {0, 2}) {
    for (const bool inner_advances : {false, true}) {
      DistributedSampler sampler(60, kWorld, 0);
      auto outer_loader = torch_loader(sampler, 4, workers);
      auto inner_loader = torch_loader(sampler, 3, workers);
      size_t steps = 0;
      const auto train = [&] {
        for (auto& batch : *outer_loader) {
          ++steps;
          sampler.advance(batch.size());
          for (auto& inner_batch : *inner_loader) {
            if (inner_advances) {
              sampler.advance(inner_batch.size());
            }
          }
        }
      };
      REQUIRE_THROWS_WITH(
          train(), Has("use a separate sampler for the inner loop"));
      REQUIRE(steps == 1);
    }
  }
}

TEST_CASE("who does not ask for progress may loop over copies side by side") {
  DistributedSampler sampler(60, kWorld, 0);
  auto images = torch_loader(sampler, 4, 2);
  auto labels = torch_loader(sampler, 4, 2);
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    sampler.set_epoch(epoch);
    auto label = labels->begin();
    size_t count = 0;
    for (auto& batch : *images) {
      REQUIRE(*label == batch);
      ++label;
      ++count;
    }
    REQUIRE(count == 5);
    REQUIRE(label == labels->end());
  }
}

} // namespace ddp::test::sampler_stops_test
