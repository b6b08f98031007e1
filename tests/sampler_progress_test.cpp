#include <ddp/ddp.h>
#include <tests/support/samplers.h>

namespace ddp::test::sampler_progress_test {

TEST_CASE("each sample comes exactly once, however ranks stop and change") {
  std::mt19937 random(7);
  const auto between = [&](size_t low, size_t high) {
    return std::uniform_int_distribution<size_t>(low, high)(random);
  };
  for (int trial = 0; trial < 1000; ++trial) {
    const auto size = between(1, 300);
    const auto batch_size = between(1, 9);
    const auto seed = between(0, 1000);
    INFO("trial " << trial << ": " << size << " samples");
    // Each sample exactly once if the number of ranks divides the rest.
    const bool shuffled = trial % 2 == 0;
    const auto length = shuffled ? size * 60 : size;
    const auto shuffling = [&](int64_t world, int64_t rank) {
      return DistributedSampler(
          length, world, rank, SamplerOptions().seed(seed));
    };
    const auto evaluating = [&](int64_t world, int64_t rank) {
      return EvaluationSampler(length, world, rank);
    };
    std::optional<State> state;
    Indices seen;
    for (const int64_t world : {4, 3, 1, 5}) {
      const auto steps = world == 5 ? length : between(0, 12);
      const auto batch = batch_size * 60 / static_cast<size_t>(world);
      const auto part = shuffled
          ? run_ranks(shuffling, world, batch, steps, state)
          : run_ranks(evaluating, world, batch_size, steps, state);
      seen.insert(seen.end(), part.begin(), part.end());
    }
    REQUIRE(sorted(seen) == up_to(length));
  }
}

/// The samples of all ranks in both epochs, from LibTorch's loader, whose
/// workers may return batches out of order.
template <typename MakeSampler>
Indices from_loaders(const MakeSampler& make, bool ordered, int64_t epoch) {
  Indices all;
  for (int64_t rank = 0; rank < 3; ++rank) {
    auto sampler = make(rank);
    auto loader = torch_loader(sampler, 4, 3, ordered);
    sampler.set_epoch(epoch);
    const auto part = drain_loader(*loader);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

TEST_CASE("loaders that do not keep the order give each sample once as well") {
  for (const int64_t epoch : {0, 1}) {
    const auto check = [&](const auto& make) {
      const auto ordered = from_loaders(make, true, epoch);
      REQUIRE(ordered.size() == 60);
      REQUIRE(sorted(from_loaders(make, false, epoch)) == sorted(ordered));
    };
    check([](int64_t rank) { return DistributedSampler(60, 3, rank); });
    check([](int64_t rank) { return EvaluationSampler(60, 3, rank); });
    check([](int64_t rank) {
      return DistributedWeightedSampler(torch::arange(60.0), 60, 3, rank);
    });
    check([](int64_t rank) {
      return StreamSampler(3, rank, StreamSamplerOptions().epoch_size(60));
    });
  }
}

TEST_CASE("a loaded position is kept until its epoch was gone on with") {
  const auto options = SamplerOptions().shuffle(false);
  DistributedSampler sampler(20, 2, 0, options);
  sampler.reset();
  sampler.next(3);
  sampler.advance(3);
  DistributedSampler resumed(20, 2, 0, options);
  resumed.load_state_dict(sampler.state_dict());
  REQUIRE(resumed.size() == 10);
  for (int look = 0; look < 2; ++look) { // at the first batch
    resumed.reset();
    REQUIRE(resumed.next(2) == Indices{6, 8});
  }
  REQUIRE(drain(resumed) == Indices{10, 12, 14, 16, 18});
  resumed.reset(); // starts a new iteration
  REQUIRE(drain(resumed).size() == 10);
  resumed.load_state_dict(sampler.state_dict());
  resumed.set_epoch(1);
  resumed.reset();
  REQUIRE(drain(resumed).size() == 10);
}

TEST_CASE("a state of an epoch that is over leaves nothing of it") {
  const auto check = [](const auto& make) {
    auto sampler = make(4, 0);
    sampler.set_epoch(4);
    sampler.reset();
    sampler.advance(drain(sampler).size());
    auto state = sampler.state_dict();
    for (const int64_t world : {4, 3, 2}) {
      auto resumed = make(world, 1);
      resumed.load_state_dict(state);
      REQUIRE(resumed.epoch() == 4);
      REQUIRE(drain(resumed).empty());
      state = resumed.state_dict();
      resumed.set_epoch(5);
      resumed.reset();
      REQUIRE(drain(resumed).size() == resumed.size());
    }
  };
  for (const bool drop_last : {false, true}) {
    const auto options = SamplerOptions().drop_last(drop_last);
    check([&](int64_t world, int64_t rank) {
      return DistributedSampler(103, world, rank, options);
    });
  }
  check([](int64_t world, int64_t rank) {
    return StreamSampler(world, rank, StreamSamplerOptions().epoch_size(103));
  });
}

TEST_CASE("a rest that is smaller than the group is over with the epoch") {
  const auto make = [](int64_t world) {
    return DistributedSampler(10, world, 0, SamplerOptions().drop_last(true));
  };
  auto two = make(2);
  two.next(4);
  two.advance(4); // all but 2 samples
  auto three = make(3);
  three.load_state_dict(two.state_dict());
  two.load_state_dict(three.state_dict()); // before the loop
  REQUIRE(drain(two).size() == 1);
  REQUIRE(drain(three).empty());
  two.load_state_dict(three.state_dict());
  REQUIRE(drain(two).empty());
}

TEST_CASE("a sampler's state that cannot be right is refused") {
  DistributedSampler sampler(20, 2, 0);
  sampler.reset();
  REQUIRE_THROWS_WITH(sampler.advance(1), Has("only 0 were drawn"));
  sampler.next(4);
  REQUIRE_THROWS_WITH(sampler.state_dict(), Has("advance"));
  sampler.advance(4);
  REQUIRE_THROWS_AS(sampler.advance(1), c10::ValueError);
  REQUIRE_THROWS_AS(sampler.advance(-1), c10::ValueError);
  const auto state = sampler.state_dict();
  DistributedSampler larger(21, 2, 0);
  REQUIRE_THROWS_WITH(
      larger.load_state_dict(state),
      Has("length is 20 in the state and 21 in this sampler"));
  DistributedSampler other(20, 2, 0, SamplerOptions().seed(1));
  REQUIRE_THROWS_WITH(
      other.load_state_dict(state), Has("seed is 0 in the state"));
  REQUIRE_THROWS_WITH(
      other.load_state_dict(State()), Has("invalid sampler state"));
  EvaluationSampler another(20, 2, 0);
  REQUIRE_THROWS_WITH(
      another.load_state_dict(state),
      Has("EvaluationSampler: the state was saved by a DistributedSampler"));
  DistributedWeightedSampler weighted(torch::ones({4}), 20, 2, 0);
  DistributedWeightedSampler otherwise(torch::arange(4.0), 20, 2, 0);
  REQUIRE_THROWS_WITH(
      otherwise.load_state_dict(weighted.state_dict()), Has("weights is"));
}

/// A program's sampler.
struct Given : ShardedSampler {
  explicit Given(at::Tensor given)
      : ShardedSampler("Given", 4, 1, 0, Remainder::kDrop),
        order(std::move(given)) {}
  at::Tensor sequence(size_t /*length*/, int64_t /*epoch*/) const override {
    return order;
  }
  at::Tensor order;
};

TEST_CASE("a program's sequence is drawn in its order, or refused") {
  const auto numbers = torch::arange(8);
  for (const auto& even :
       {numbers.slice(0, 0, 8, 2), numbers.to(torch::kInt).slice(0, 0, 8, 2)}) {
    Given sampler(even); // not contiguous
    REQUIRE(drain(sampler) == Indices{0, 2, 4, 6});
  }
  for (const auto& wrong :
       {torch::arange(3),
        torch::arange(5),
        torch::arange(4).view({2, 2}),
        torch::arange(4.0),
        torch::empty({4}, torch::dtype(torch::kLong).device(torch::kMeta))}) {
    Given sampler(wrong);
    REQUIRE_THROWS_WITH(
        sampler.next(1),
        Has("Given: sequence() returned ",
            ", expected an int64 or int32 tensor of shape [4] on the CPU"));
  }
}

TEST_CASE("EvaluationSampler gives each sample to one rank") {
  for (const size_t size : {1, 2, 9, 10, 11, 12}) {
    Indices all;
    for (int64_t rank = 0; rank < 5; ++rank) {
      EvaluationSampler sampler(size, 5, rank);
      const auto share = sampler.size();
      const auto part = drain(sampler, 2);
      REQUIRE(part.size() == share);
      all.insert(all.end(), part.begin(), part.end());
    }
    REQUIRE(sorted(all) == up_to(size));
  }
}

TEST_CASE("DistributedWeightedSampler draws multinomial's samples") {
  const auto weights = torch::tensor({0.0, 1.0, 3.0, 0.0, 4.0});
  for (const int64_t epoch : {0, 2}) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(5 + epoch);
    const auto expected =
        torch::multinomial(weights.to(torch::kDouble), 12, true, generator);
    Indices drawn(12);
    for (int64_t rank = 0; rank < 3; ++rank) {
      DistributedWeightedSampler sampler(
          weights, 12, 3, rank, WeightedSamplerOptions().seed(5));
      sampler.set_epoch(epoch);
      sampler.reset();
      const auto part = drain(sampler);
      REQUIRE(part.size() == 4);
      for (size_t i = 0; i < 4; ++i) {
        drawn[3 * i + rank] = part[i];
      }
    }
    for (size_t i = 0; i < 12; ++i) {
      REQUIRE(drawn[i] == static_cast<size_t>(expected[i].item<int64_t>()));
    }
  }
  const auto without = WeightedSamplerOptions().replacement(false);
  REQUIRE_THROWS_WITH(
      DistributedWeightedSampler(weights, 4, 1, 0, without),
      Has("only 3 weights are above 0"));
  REQUIRE_THROWS_AS(
      DistributedWeightedSampler(torch::zeros({3}), 4, 1, 0), c10::ValueError);
  REQUIRE_THROWS_AS(
      DistributedWeightedSampler(torch::tensor({1.0, -1.0}), 4, 1, 0),
      c10::ValueError);
}

TEST_CASE("BatchSampler keeps its size, whatever the loader asks for") {
  DistributedSampler sampler(20, 2, 1, SamplerOptions().shuffle(false));
  for (const bool drop_last : {false, true}) {
    auto loader = torch_loader(
        BatchSampler<DistributedSampler>(sampler, 4, drop_last), 3);
    std::vector<size_t> sizes;
    for (auto& batch : *loader) {
      sizes.push_back(batch.size());
    }
    REQUIRE(sizes == (drop_last ? Indices{4, 4} : Indices{4, 4, 2}));
  }
  REQUIRE_THROWS_AS(
      BatchSampler<DistributedSampler>(sampler, 0, false), c10::ValueError);
}

TEST_CASE("a loop that drops the last batch is at the end of its epoch") {
  const DistributedSampler start(10, 1, 0, SamplerOptions().shuffle(false));
  BatchSampler<DistributedSampler> first(start, 4, true);
  first.next();
  first.advance(4);
  BatchSampler<DistributedSampler> resumed(
      DistributedSampler(10, 1, 0, SamplerOptions().shuffle(false)), 4, true);
  resumed.load_state_dict(first.state_dict());
  Indices samples;
  for (int loop = 0; loop < 3; ++loop) {
    resumed.reset();
    samples.push_back(0);
    while (const auto batch = resumed.next()) {
      samples.back() += batch->size();
      resumed.advance(batch->size());
    }
  }
  REQUIRE(samples == Indices{4, 8, 8});
}

TEST_CASE("LibTorch's loader resumes before a smaller last batch if asked to") {
  for (const bool keeps : {false, true}) {
    DistributedSampler sampler(10, 1, 0, SamplerOptions().shuffle(false));
    sampler.next(4);
    sampler.advance(4);
    sampler.load_state_dict(sampler.state_dict());
    if (keeps) {
      sampler.keep_last_batch();
    }
    auto loader = torch_loader(sampler, 4);
    for (auto& batch : *loader) {
      if (batch.size() < 4) {
        break;
      }
      sampler.advance(batch.size());
    }
    REQUIRE((*loader->begin())[0] == (keeps ? 4 : 0));
  }
}

} // namespace ddp::test::sampler_progress_test
