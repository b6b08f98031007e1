// What is done thousands of times in one process leaves nothing behind.
#include <bench/process_memory.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>
#include <tests/support/stepped_training.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace ddp::test::load_test {

using std::chrono::seconds;

// That a process may grow by in all: what is done now and then, such as a
// heartbeat, may begin late.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kMostMib = 400; // they keep freed memory for a while
#else
constexpr double kMostMib = 8;
#endif
constexpr int64_t kLate = 2; // threads and keys

/// A part of `all`: some percent, which DDP_TEST_LOAD sets.
int64_t part_of(int64_t all, int usual = 5) {
  return all * variable("DDP_TEST_LOAD", usual) / 100;
}

ProcessGroupOptions over(const std::string& backend) {
  return ProcessGroupOptions().backend(backend).device(at::kCPU).timeout(
      seconds(300));
}

/// Runs `body` on so many ranks, and prints what they print.
void run(
    int size,
    const std::string& backend,
    const std::function<void(const ProcessGroup&)>& body) {
  const auto options = RankOptions().timeout(seconds(2400));
  for (const auto& outcome :
       ranks(size, options, [&] { body(init_process_group(over(backend))); })) {
    std::cout << outcome.output;
  }
}

int64_t entries_of(const std::string& folder) {
  return std::distance(
      std::filesystem::directory_iterator(folder),
      std::filesystem::directory_iterator());
}

/// What a process has, and the store of its group.
struct Counts {
  explicit Counts(const ProcessGroup& group) {
    group.barrier(); // the others do no more
    keys = group.store()->getNumKeys();
    group.barrier();
    files = entries_of("/proc/self/fd");
    threads = entries_of("/proc/self/task");
    mib = bench::memory_mib("smaps_rollup", "Pss:");
  }

  int64_t keys = 0, files = 0, threads = 0;
  double mib = 0;
};

std::ostream& operator<<(std::ostream& out, const Counts& counts) {
  return out << counts.files << " descriptors, " << counts.threads
             << " threads, " << counts.keys << " keys, " << counts.mib
             << " MiB";
}

/// Calls `once` so often; after the first twentieth, nothing may grow.
void require_flat(
    const std::string& what,
    int64_t times,
    const ProcessGroup& group,
    const std::function<void(int64_t)>& once) {
  const auto first = std::max<int64_t>(2, times / 20);
  const auto begin = std::chrono::steady_clock::now();
  std::optional<Counts> before;
  for (int64_t i = 0; i < times; ++i) {
    if (i == first) {
      before.emplace(group);
    }
    once(i);
  }
  const Counts after(group);
  const std::chrono::duration<double> passed =
      std::chrono::steady_clock::now() - begin;
  std::ostringstream text;
  text << group.size() << " ranks, " << what << ": after " << first << ' '
       << *before << "; after " << times << ' ' << after << "; "
       << passed.count() << " s\n";
  print(group, text.str());
  INFO(text.str());
  CHECK(after.files == before->files);
  CHECK(after.threads <= before->threads + kLate);
  CHECK(after.keys <= before->keys + kLate);
  CHECK(after.mib <= before->mib + kMostMib);
}

struct Trained {
  explicit Trained(const ProcessGroup& group, int64_t width = 4)
      : net(width, width), reducer(net, group), rank(group.rank()) {}

  void step() {
    optimizer.zero_grad();
    net->forward(torch::full({2, net->options.in_features()}, 0.01 * rank))
        .square()
        .mean()
        .backward();
    optimizer.step();
  }

  torch::nn::Linear net;
  Reducer reducer;
  torch::optim::SGD optimizer{net->parameters(), 0.01};
  int64_t rank;
};

TEST_CASE("groups that are formed of a group and destroyed leave nothing") {
  for (const std::string backend : {"gloo", "shm"}) {
    run(3, backend, [&](const ProcessGroup& group) {
      const auto times = part_of(1000);
      require_flat(backend + " groups", times, group, [&](int64_t i) {
        const auto made = i % 2 == 0 ? group.duplicate() : group.split(0);
        auto sum = torch::ones({3});
        made.all_reduce(sum);
        REQUIRE(sum[0].item<double>() == 3);
      });
    });
  }
}

TEST_CASE("steps with absences leave nothing") {
  run(3, "shm", [](const ProcessGroup& group) {
    Trained training(group);
    constexpr int64_t kRound = 20; // steps of the rank that does most
    std::mt19937_64 random(1); // the same on all ranks
    require_flat("rounds", part_of(100'000 / kRound), group, [&](int64_t i) {
      const auto busiest = i % group.size();
      auto join = training.reducer.join();
      for (int64_t rank = 0; rank < group.size(); ++rank) {
        const auto steps =
            rank == busiest ? kRound : static_cast<int64_t>(random() % kRound);
        for (int64_t step = 0; rank == group.rank() && step < steps; ++step) {
          training.step();
        }
      }
    });
    REQUIRE(equal_on_all(group, training.net->weight.detach()));
  });
}

TEST_CASE("saves leave nothing but the last checkpoints") {
  const SharedFolder folder;
  for (const bool background : {false, true}) {
    const auto path = folder.path + (background ? "background" : "saved");
    run(3, "shm", [&](const ProcessGroup& group) {
      SteppedTraining training;
      CheckpointManager checkpoints(
          path,
          training.state,
          group,
          CheckpointManagerOptions().asynchronous(background));
      const auto times = part_of(10'000);
      require_flat("saves", times, group, [&](int64_t i) {
        training.set(i);
        checkpoints.save(i);
        if (i % 25 == 24) { // before each count
          checkpoints.wait();
        }
      });
      checkpoints.wait();
      group.barrier();
      REQUIRE(step_of(path + "/latest") == times - 1);
      REQUIRE(entries_of(path) <= 6); // of steps, "latest", the epoch, a lock
    });
  }
}

TEST_CASE("many ranks on one host train") {
  const auto size = std::max<int>(8, part_of(128));
  for (const std::string backend : {"shm", "gloo"}) {
    // Over gloo, a step of 128 ranks on two cores takes seconds.
    const auto steps =
        std::min<int64_t>(part_of(500), backend == "gloo" ? 60 : 500);
    run(size, backend, [&](const ProcessGroup& group) {
      Trained training(group, 64);
      require_flat(
          backend + " steps", steps, group, [&](int64_t) { training.step(); });
      REQUIRE(equal_on_all(group, training.net->weight.detach()));
    });
  }
}

} // namespace ddp::test::load_test
