#include <ddp/samplers/distributed_sampler.h>
#include <tests/support/failures.h>
#include <tests/support/launched.h>
#include <tests/support/samplers.h>
#include <tests/support/values.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace ddp::test::distributed_sampler_test {

Indices epoch_of(DistributedSampler& sampler, int64_t epoch) {
  sampler.set_epoch(epoch);
  sampler.reset();
  return drain(sampler);
}

TEST_CASE("DistributedSampler equals the live Python sampler") {
  std::istringstream lines(
      python_output({parity_program("sampler_indices.py")}));
  size_t cases = 0, wrong = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    size_t size = 0;
    int64_t world = 0, rank = 0, epoch = 0;
    uint64_t seed = 0;
    bool shuffle = false, drop_last = false;
    words >> size >> world >> rank >> shuffle >> drop_last >> seed >> epoch;
    Indices expected;
    for (size_t index = 0; words >> index;) {
      expected.push_back(index);
    }
    DistributedSampler sampler(
        size,
        world,
        rank,
        SamplerOptions().shuffle(shuffle).drop_last(drop_last).seed(seed));
    const bool right = epoch_of(sampler, epoch) == expected &&
        sampler.size() == expected.size();
    if (!right && wrong++ == 0) {
      FAIL_CHECK("first difference: " << line);
    }
    ++cases;
  }
  CHECK(cases > 10000);
  CHECK(wrong == 0);
}

TEST_CASE("DistributedSampler refuses a rank that is none") {
  CHECK_THROWS_WITH(
      DistributedSampler(10, 4, 4),
      Has("Invalid rank 4, rank should be in the interval [0, 3]"));
  CHECK_THROWS_AS(DistributedSampler(10, 4, -1), c10::ValueError);
  CHECK_THROWS_AS(DistributedSampler(10, 0, 0), c10::ValueError);
  CHECK_THROWS_WITH(DistributedSampler(10, -2, 0), Has("num_replicas is -2"));
  CHECK_THROWS_WITH(
      DistributedSampler(0, 3, 1), Has("the number of samples is 0"));
}

TEST_CASE("DistributedSampler takes the rank from a group") {
  DistributedSampler sampler(
      5, ProcessGroup(), SamplerOptions().shuffle(false));
  CHECK(drain(sampler) == Indices{0, 1, 2, 3, 4});
}

RANKS_TEST("samplers of another dataset or order are refused") {
  const bool other = group.rank() == 1;
  // The first rank throws in its next wait, and all ranks get one text.
  const auto check = [&](const std::string& text, const auto& construct) {
    const auto own = group.duplicate();
    const auto error = error_on_all(group, [&] {
      construct(own);
      own.barrier();
    });
    REQUIRE_THAT(error, Has(text));
  };
  check(
      "the sampler differs between ranks: ranks 0 and 2: DistributedSampler "
      "of 100 samples, drop_last 0, shuffle 1, seed 0; rank 1: "
      "DistributedSampler of 90 samples, drop_last 0, shuffle 1, seed 0. "
      "Construct the same samplers in the same order on all ranks",
      [&](const auto& own) { DistributedSampler(other ? 90 : 100, own); });
  check("rank 1: DistributedSampler of 100", [&](const auto& own) {
    DistributedSampler(100, own, SamplerOptions().seed(other));
  });
  check("drop_last 1", [&](const auto& own) {
    DistributedSampler(100, own, SamplerOptions().drop_last(other));
  });
  check("rank 1: EvaluationSampler of 90 samples", [&](const auto& own) {
    EvaluationSampler(other ? 90 : 100, own);
  });
  check("weights ", [&](const auto& own) {
    DistributedWeightedSampler(torch::ones({5}) * (other ? 2 : 1), 5, own);
  });
  check("20 samples", [&](const auto& own) {
    StreamSampler(own, StreamSamplerOptions().epoch_size(other ? 20 : 10));
  });
  check(
      "ranks 0 and 2: DistributedSampler of 100 samples, drop_last 0, "
      "shuffle 1, seed 0; rank 1: EvaluationSampler of 100 samples",
      [&](const auto& own) {
        if (other) {
          EvaluationSampler(100, own);
        } else {
          DistributedSampler(100, own);
        }
      });
  check(
      "a sampler that only one rank uses needs num_replicas 1 and rank 0",
      [&](const auto& own) {
        if (other) { // for example, to evaluate alone
          EvaluationSampler(7, own);
        }
        DistributedSampler(100, own);
      });
}

RANKS_TEST("samplers that differ do not wait for one that never comes") {
  const auto own = group.duplicate();
  if (group.rank() == 0) {
    DistributedSampler(100, own);
  }
  group.barrier();
  if (group.rank() == 1) {
    REQUIRE_THROWS_WITH(
        DistributedSampler(90, own),
        Has("rank 0: DistributedSampler of 100 samples",
            "; rank 1: DistributedSampler of 90 samples"));
  }
  group.barrier();
}

/// A store that ends when ranks have written their first texts.
class EndingStore : public c10d::FileStore {
 public:
  using FileStore::FileStore;

  bool hasExtendedApi() const override {
    return true;
  }
  void append(const std::string&, const std::vector<uint8_t>&) override {
    TORCH_CHECK_WITH(DistNetworkError, false, "Broken pipe");
  }
};

/// Different samplers, with a store from which no rank reads all texts.
template <typename Store>
void compare_with_first(const ProcessGroup& group) {
  const SharedFolder folder;
  const auto rank = static_cast<int>(group.rank());
  const auto c10d = group.c10d();
  const auto other = c10::make_intrusive<c10d::ProcessGroup>(
      c10::make_intrusive<Store>(folder.path + "store", 3), rank, 3);
  other->setBackend(
      at::kCPU, c10d->getBackendType(), c10d->getBackend(at::kCPU));
  other->setDefaultBackend(c10d->getBackendType());
  const auto handed = ProcessGroup::from_c10d(other);
  if (rank != 1) {
    DistributedSampler(100, handed);
  }
  group.barrier();
  if (rank == 1) {
    REQUIRE_THROWS_WITH(
        DistributedSampler(90, handed),
        Has("the sampler differs between ranks: rank 1: "
            "DistributedSampler of 90 samples",
            "; the first that arrived: DistributedSampler of 100 samples"));
  }
}

RANKS_TEST("samplers are compared in a store that cannot append, too") {
  compare_with_first<c10d::FileStore>(group);
}

RANKS_TEST("a sampler that differs is known if the store ends") {
  compare_with_first<EndingStore>(group);
}

RANKS_TEST("a sampler that one rank has besides leaves others comparable") {
  DistributedSampler(100, group);
  DistributedSampler(50, group);
  if (group.rank() == 0) {
    DistributedSampler(100, group);
    EvaluationSampler(7, 1, 0);
  }
  group.barrier();
}

TEST_CASE("DistributedSampler leaves the global random state") {
  torch::manual_seed(1);
  const auto expected = torch::rand({4});
  torch::manual_seed(1);
  DistributedSampler sampler(100, 2, 0);
  epoch_of(sampler, 3);
  CHECK(torch::equal(torch::rand({4}), expected));
  torch::manual_seed(2);
  CHECK(epoch_of(sampler, 3) == epoch_of(sampler, 3));
}

TEST_CASE("DistributedSampler cuts its order into batches") {
  DistributedSampler sampler(10, 2, 1, SamplerOptions().shuffle(false));
  CHECK(sampler.next(2) == Indices{1, 3});
  CHECK(sampler.next(2) == Indices{5, 7});
  CHECK(sampler.next(2) == Indices{9});
  CHECK_FALSE(sampler.next(2).has_value());
  sampler.reset(4);
  CHECK(sampler.size() == 2);
  CHECK(drain(sampler) == Indices{1, 3});
}

TEST_CASE("DistributedSampler keeps the order until reset") {
  DistributedSampler sampler(10, 3, 0);
  sampler.set_epoch(1);
  CHECK(sampler.epoch() == 1);
  CHECK(drain(sampler) == Indices{4, 5, 0, 2});
  sampler.reset();
  CHECK(drain(sampler) == Indices{5, 2, 9, 4});
}

TEST_CASE("DistributedSampler saves its epoch and position") {
  DistributedSampler sampler(30, 3, 1);
  sampler.set_epoch(6);
  sampler.reset();
  sampler.next(4);
  sampler.set_epoch(7); // for the order after the current one
  torch::serialize::OutputArchive saved;
  sampler.save(saved);
  const auto rest = drain(sampler);
  std::stringstream bytes;
  saved.save_to(bytes);
  torch::serialize::InputArchive archive;
  archive.load_from(bytes);

  DistributedSampler held(30, 3, 1);
  auto loaders = held;
  held.load(archive);
  CHECK(held.epoch() == 6);
  loaders.reset(); // as a loader does
  CHECK(drain(loaders) == rest);
  held.advance(rest.size());
  CHECK(held.state_dict()["samples_done"].item<int64_t>() == 30);
  loaders.reset();
  CHECK(drain(loaders).size() == 10);
  DistributedSampler smaller(9, 3, 1);
  CHECK_THROWS_WITH(smaller.load(archive), Has("the saved position is 4"));
}

TEST_CASE("DistributedSampler moved into a loader takes epochs") {
  DistributedSampler sampler(10, 3, 0);
  auto loader = torch_loader(std::move(sampler), 2);
  sampler.set_epoch(2); // NOLINT(bugprone-use-after-move): a move is a copy
  CHECK(drain_loader(*loader) == Indices{8, 5, 0, 3});
}

RANKS_TEST("a sampler may be made when the rank with the store has ended") {
  if (group.rank() == 0) {
    return;
  }
  await_end_of_store(group);
  DistributedSampler sampler(100, group);
  sampler.reset();
  REQUIRE(sampler.next(1).has_value());
}

} // namespace ddp::test::distributed_sampler_test
