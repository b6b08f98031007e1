#include <ddp/samplers/distributed_sampler.h>
#include <tests/support/samplers.h>

namespace ddp::test::stream_sampler_test {

using torch::data::DataLoaderOptions;

/// A stream of unknown length.
const Numbers kStream(std::nullopt);

StreamSamplerOptions epochs_of(size_t size) {
  return StreamSamplerOptions().epoch_size(size);
}

TEST_CASE("samples in the dataset's order take no memory") {
  constexpr size_t kMany = 1'000'000'000'000;
  EvaluationSampler evaluation(kMany, 3, 1);
  evaluation.reset();
  REQUIRE(evaluation.next(3) == Indices{1, 4, 7});
  DistributedSampler plain(kMany, 3, 2, SamplerOptions().shuffle(false));
  plain.reset();
  REQUIRE(plain.next(2) == Indices{2, 5});
  REQUIRE(plain.next(2) == Indices{8, 11});
}

TEST_CASE("a stream's epochs follow one another, and nothing comes twice") {
  constexpr size_t kEpoch = 60;
  each_way_to_load(4, [&](const DataLoaderOptions& options) {
    for (const int64_t world : {3, 4}) {
      INFO(world << " ranks");
      Indices all;
      for (int64_t rank = 0; rank < world; ++rank) {
        StreamSampler sampler(world, rank, epochs_of(kEpoch));
        REQUIRE(sampler.size() == kEpoch / static_cast<size_t>(world));
        const auto loader =
            torch::data::make_data_loader(kStream, sampler, options);
        for (int64_t epoch = 0; epoch < 3; ++epoch) {
          sampler.set_epoch(epoch);
          const auto part = drain_loader(*loader);
          REQUIRE(part.size() == sampler.size());
          if (options.enforce_ordering()) {
            REQUIRE(part.front() == epoch * kEpoch + rank);
            REQUIRE(part == sorted(part));
          }
          all.insert(all.end(), part.begin(), part.end());
        }
      }
      REQUIRE(sorted(all) == up_to(3 * kEpoch));
    }
  });
}

TEST_CASE("ranks draw equally many of an epoch of a stream") {
  Indices all;
  for (int64_t rank = 0; rank < 3; ++rank) {
    StreamSampler sampler(3, rank, epochs_of(11));
    sampler.set_epoch(2);
    sampler.reset();
    const auto part = drain(sampler);
    REQUIRE(part.size() == 3);
    all.insert(all.end(), part.begin(), part.end());
  }
  REQUIRE(sorted(all) == Indices{22, 23, 24, 25, 26, 27, 28, 29, 30});
}

TEST_CASE("an endless stream is dealt to the ranks for as long as they ask") {
  each_way_to_load(4, [&](const DataLoaderOptions& options) {
    Indices all;
    for (int64_t rank = 0; rank < 3; ++rank) {
      StreamSampler sampler(3, rank);
      REQUIRE(sampler.size() > size_t(1) << 60);
      const auto loader =
          torch::data::make_data_loader(kStream, sampler, options);
      size_t step = 0;
      for (auto& batch : *loader) {
        all.insert(all.end(), batch.begin(), batch.end());
        sampler.advance(batch.size());
        if (++step == 50) {
          break;
        }
      }
      REQUIRE(sampler.state_dict()["samples_done"].item<int64_t>() == 600);
    }
    all = sorted(all);
    REQUIRE(std::adjacent_find(all.begin(), all.end()) == all.end());
    REQUIRE(all.size() == 600);
    if (options.enforce_ordering()) {
      REQUIRE(all == up_to(600));
    }
  });
}

TEST_CASE("a stream is gone on with by other ranks, each sample once") {
  std::mt19937 random(3);
  const auto steps = [&] {
    return std::uniform_int_distribution<size_t>(0, 9)(random);
  };
  for (int trial = 0; trial < 200; ++trial) {
    for (const bool endless : {true, false}) {
      const auto options =
          endless ? StreamSamplerOptions() : epochs_of(10'000'000);
      std::optional<State> state;
      Indices seen;
      for (const int64_t world : {4, 3, 1, 5}) {
        const auto part = run_ranks(
            [&](int64_t n, int64_t rank) {
              return StreamSampler(n, rank, options);
            },
            world,
            3,
            steps(),
            state);
        seen.insert(seen.end(), part.begin(), part.end());
      }
      INFO("trial " << trial << ", endless: " << endless);
      REQUIRE(sorted(seen) == up_to(seen.size()));
    }
  }
}

TEST_CASE("a stream goes on in a later epoch where it stopped") {
  StreamSampler sampler(3, 1, epochs_of(30));
  sampler.set_epoch(4);
  sampler.reset();
  REQUIRE(sampler.next(2) == Indices{121, 124});
  sampler.advance(2);
  StreamSampler resumed(4, 0, epochs_of(30));
  resumed.load_state_dict(sampler.state_dict());
  REQUIRE(resumed.epoch() == 4);
  REQUIRE(drain(resumed) == Indices{126, 130, 134, 138, 142, 146});
  resumed.set_epoch(5);
  resumed.reset();
  REQUIRE(resumed.next(2) == Indices{150, 154});
}

TEST_CASE("what a stream cannot be is refused") {
  REQUIRE_THROWS_AS(StreamSampler(3, 0, epochs_of(0)), c10::ValueError);
  REQUIRE_THROWS_AS(StreamSampler(3, 3), c10::ValueError);
  StreamSampler sampler(3, 0, epochs_of(9));
  sampler.set_epoch(-1);
  sampler.reset();
  REQUIRE_THROWS_WITH(
      sampler.next(1), Has("epoch -1 of 9 samples is negative"));
  StreamSampler endless(3, 0);
  REQUIRE_THROWS_WITH(
      endless.load_state_dict(sampler.state_dict()),
      Has("length is 9 in the state"));
}

} // namespace ddp::test::stream_sampler_test
