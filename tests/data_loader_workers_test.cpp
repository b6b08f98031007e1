// The threads of a data loader.
#include <tests/support/made_samples.h>

namespace ddp::test::data_loader_workers_test {

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

} // namespace ddp::test::data_loader_workers_test
