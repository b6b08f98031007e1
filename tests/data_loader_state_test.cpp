// Where a loop over a data loader is: iterations, and what counts as done.

#include <ddp/samplers/batch_sampler.h>
#include <ddp/samplers/data_loader.h>
#include <ddp/samplers/distributed_sampler.h>
#include <tests/support/samplers.h>

namespace ddp::test::data_loader_state_test {

using torch::data::samplers::SequentialSampler;

TEST_CASE("one iteration over a data loader is alive at a time") {
  DistributedSampler sampler(40, 2, 0);
  auto loader =
      make_data_loader(Numbers(40), sampler, DataLoaderOptions(4).workers(1));
  auto outer = loader->begin();
  REQUIRE((*outer).size() == 4);
  for (auto& batch : *loader) {
    REQUIRE(batch.size() == 4);
  }
  REQUIRE_THROWS_WITH(++outer, Has("this iteration is over"));
  auto other_epoch = loader->begin();
  REQUIRE((*other_epoch).size() == 4);
  loader->set_epoch(0); // is it already
  ++other_epoch;
  loader->set_epoch(1);
  REQUIRE_THROWS_WITH(++other_epoch, Has("another epoch"));
}

TEST_CASE("a loop that ends early can begin anew") {
  for (const size_t workers : {0, 2}) {
    auto loader = make_data_loader(
        Numbers(50),
        SequentialSampler(50),
        DataLoaderOptions(3).workers(workers));
    for (int round = 0; round < 3; ++round) {
      for (auto& batch : *loader) {
        REQUIRE(batch == Indices{0, 1, 2});
        break;
      }
    }
  }
}

TEST_CASE("a data loader's state is the loop's, whatever workers fetched") {
  for (const size_t workers : {0, 1, 2, 4}) {
    INFO(workers << " workers");
    const auto make = [&] {
      return make_data_loader(
          Numbers(100),
          DistributedSampler(100, 2, 0, SamplerOptions().seed(3)),
          DataLoaderOptions(4).workers(workers));
    };
    auto whole = make();
    whole->set_epoch(2);
    const auto all = drain_loader(*whole);
    Indices seen;
    auto stopped = make();
    stopped->set_epoch(2);
    for (auto& batch : *stopped) {
      seen.insert(seen.end(), batch.begin(), batch.end());
      if (seen.size() == 20) {
        break;
      }
    }
    const auto state = stopped->state_dict();
    REQUIRE(state["samples_done"].item<int64_t>() == 40);
    auto resumed = make();
    resumed->load_state_dict(state);
    REQUIRE(resumed->epoch() == 2);
    resumed->set_epoch(resumed->epoch());
    const auto rest = drain_loader(*resumed);
    seen.insert(seen.end(), rest.begin(), rest.end());
    REQUIRE(seen == all);
    resumed->set_epoch(3);
    REQUIRE(drain_loader(*resumed).size() == 50);
  }
}

TEST_CASE("an epoch without its last batch is over all the same") {
  for (const size_t size : {40, 3}) {
    auto loader = make_data_loader(
        Numbers(size),
        DistributedSampler(size, 2, 0),
        DataLoaderOptions(6).workers(1).drop_last(true));
    for (auto& batch : *loader) {
      REQUIRE(batch.size() == 6);
    }
    const auto done = loader->state_dict()["samples_done"].item<int64_t>();
    REQUIRE(done == static_cast<int64_t>(size));
  }
}

TEST_CASE("BatchSampler lends a data loader its sampler's state") {
  auto loader = make_data_loader(
      Numbers(40),
      BatchSampler<DistributedSampler>(DistributedSampler(40, 2, 0), 5, false),
      DataLoaderOptions());
  loader->set_epoch(3);
  REQUIRE(loader->epoch() == 3);
  auto batch = loader->begin();
  REQUIRE(loader->state_dict()["samples_done"].item<int64_t>() == 0);
  REQUIRE((*batch).size() == 5);
  REQUIRE(loader->state_dict()["samples_done"].item<int64_t>() == 10);
}

TEST_CASE("what the loop is done with is counted once") {
  DistributedSampler sampler(20, 2, 0);
  auto loader =
      make_data_loader(Numbers(20), sampler, DataLoaderOptions(10).workers(1));
  for (auto& batch : *loader) {
    REQUIRE(sampler.state_dict()["samples_done"].item<int64_t>() == 20);
    REQUIRE_THROWS_AS(sampler.advance(batch.size()), c10::ValueError);
  }
}

} // namespace ddp::test::data_loader_state_test
