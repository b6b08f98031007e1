// The position of a loop over a data loader: iterations, and completed samples.
#include <ddp/ddp.h>
#include <tests/support/made_samples.h>
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
  loader->set_epoch(0); // it is 0 already
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
    const auto check = [&](auto sampler, bool drop_last) {
      auto loader = make_data_loader(
          Numbers(size),
          std::move(sampler),
          DataLoaderOptions(6).workers(1).drop_last(drop_last));
      const auto done = [&] {
        return at::Tensor(loader->state_dict()["samples_done"]).item().toLong();
      };
      int batches = 0;
      for (auto& batch : *loader) {
        REQUIRE(batch.size() == 6);
        REQUIRE(done() == (++batches == 3 ? 40 : 12 * batches));
      }
      REQUIRE(done() == static_cast<int64_t>(size));
    };
    const DistributedSampler sampler(size, 2, 0);
    check(sampler, true);
    check(BatchSampler<DistributedSampler>(sampler, 6, true), false);
  }
}

TEST_CASE("a resumed epoch is not over before its smaller last batch") {
  const auto options = SamplerOptions().shuffle(false);
  DistributedSampler stopped(95, 1, 0, options);
  stopped.next(70);
  stopped.advance(70);
  const auto first_of = [](auto& loader) { return (*loader.begin())[0]; };
  for (const size_t workers : {0, 2}) {
    INFO(workers << " workers");
    const auto check = [&](auto sampler, bool drop_last) {
      auto loader = make_data_loader(
          Numbers(95),
          std::move(sampler),
          DataLoaderOptions(10).workers(workers).drop_last(drop_last));
      loader->load_state_dict(stopped.state_dict());
      auto batch = loader->begin();
      ++batch;
      REQUIRE((*batch)[0] == 80);
      REQUIRE(first_of(*loader) == (drop_last ? 0 : 70)); // after a break
      drain_loader(*loader);
      REQUIRE(first_of(*loader) == 0); // after the end
    };
    const DistributedSampler sampler(95, 1, 0, options);
    check(sampler, false);
    check(sampler, true);
    check(BatchSampler<DistributedSampler>(sampler, 10, false), false);
  }
  BatchSampler<DistributedSampler> dropping(
      DistributedSampler(95, 1, 0, options), 10, true);
  auto loader = make_data_loader(Numbers(95), dropping, DataLoaderOptions(10));
  loader->load_state_dict(stopped.state_dict());
  REQUIRE(drain_loader(*loader).back() == 89);
  REQUIRE(first_of(*loader) == 0);
}

TEST_CASE("after a failure in its last batch a resumed epoch begins again") {
  DistributedSampler sampler(kSize - 4, 1, 0, SamplerOptions().shuffle(false));
  sampler.next(30);
  sampler.advance(30);
  for (const size_t workers : {0, 2}) {
    std::atomic<bool> fails = true;
    auto loader = make_data_loader(
        Made([&](size_t index) {
          if (index == 45 && fails) {
            throw std::out_of_range("unreadable");
          }
          return torch::tensor(static_cast<int64_t>(index));
        }).map(torch::data::transforms::Stack<>()),
        DistributedSampler(kSize - 4, 1, 0, SamplerOptions().shuffle(false)),
        DataLoaderOptions(9).workers(workers));
    loader->load_state_dict(sampler.state_dict());
    auto batch = loader->begin();
    REQUIRE_THROWS_AS(++batch, std::out_of_range);
    fails = false;
    REQUIRE((*loader->begin()).data[0].item<int64_t>() == 30);
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

// The threads of a data loader.

TEST_CASE("workers that take different times keep the order") {
  auto loader = loader_of(DataLoaderOptions(4).workers(4), [](size_t index) {
    std::this_thread::sleep_for(
        std::chrono::microseconds(index % 7 == 0 ? 2000 : 10));
    return torch::tensor(static_cast<int64_t>(index));
  });
  int64_t next = 0;
  for (auto& batch : *loader) {
    for (int64_t row = 0; row < batch.data.size(0); ++row) {
      REQUIRE(batch.data[row].item<int64_t>() == next++);
    }
  }
  REQUIRE(next == kSize);
}

TEST_CASE("all workers load samples of one batch") {
  // Each of the two samples waits until the other is being loaded too.
  auto both = std::make_shared<std::array<std::promise<void>, 2>>();
  auto loader = loader_of(
      DataLoaderOptions(2).workers(2).max_jobs(1), [both](size_t index) {
        if (index < 2) {
          (*both)[index].set_value();
          auto other = (*both)[1 - index].get_future();
          TORCH_CHECK(
              other.wait_for(std::chrono::seconds(30)) ==
              std::future_status::ready);
        }
        return torch::zeros({1});
      });
  REQUIRE((*loader->begin()).data.size(0) == 2);
}

TEST_CASE("each worker is set up before it loads") {
  std::mutex mutex;
  std::set<size_t> numbers;
  std::set<std::thread::id> threads;
  const auto init = [&](size_t worker) {
    const std::lock_guard<std::mutex> lock(mutex);
    numbers.insert(worker);
    threads.insert(std::this_thread::get_id());
  };
  std::atomic<int> not_set_up = 0;
  const auto make = [&](size_t) {
    const std::lock_guard<std::mutex> lock(mutex);
    not_set_up += threads.count(std::this_thread::get_id()) == 0;
    return torch::zeros({1});
  };
  auto loader =
      loader_of(DataLoaderOptions(2).workers(3).worker_init(init), make);
  REQUIRE(numbers == std::set<size_t>{0, 1, 2});
  REQUIRE(threads.count(std::this_thread::get_id()) == 0);
  for (auto& batch : *loader) {
    REQUIRE(batch.data.size(0) == 2);
  }
  REQUIRE(not_set_up == 0);
  const auto fail = [](size_t worker) {
    if (worker == 1) {
      throw std::out_of_range("no camera for worker 1");
    }
  };
  REQUIRE_THROWS_AS(
      loader_of(DataLoaderOptions(2).workers(3).worker_init(fail), make),
      std::out_of_range);
  loader_of(DataLoaderOptions(2).worker_init(fail), make); // there is none
}

TEST_CASE("workers use one thread each and leave signals to the program") {
  const auto before = at::get_num_threads();
  at::set_num_threads(2);
  std::mutex mutex;
  std::set<int> threads;
  std::set<bool> blocked;
  auto loader = loader_of(DataLoaderOptions(4).workers(3), [&](size_t) {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    const std::lock_guard<std::mutex> lock(mutex);
    threads.insert(at::get_num_threads());
    blocked.insert(
        sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGSEGV) == 0);
    return torch::zeros({1});
  });
  for (auto& batch : *loader) {
    REQUIRE(batch.data.size(1) == 1);
  }
  REQUIRE(threads == std::set<int>{1});
  REQUIRE(blocked == std::set<bool>{true});
  REQUIRE(at::get_num_threads() == 2);
  int fresh = 0;
  std::thread([&] { fresh = at::get_num_threads(); }).join();
  REQUIRE(fresh == 2);
  at::set_num_threads(before);
}

} // namespace ddp::test::data_loader_state_test
