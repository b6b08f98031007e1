// The steps of collectives over shared memory: in each order in which ranks
// can do them, and by threads, whose accesses ThreadSanitizer compares.
#include <tests/support/catch.h>

#include <ddp/backends/shm/all_reduce.h>
#include <ddp/backends/shm/exchange.h>

namespace ddp::test::shm_interleavings_test {

using namespace backends::shm;
using Tensors = std::vector<at::Tensor>;

enum class Kind { kInSlots, kInHeaps, kInSomeHeaps, kGather };

/// The ranks of a group, all in this process.
class Group {
 public:
  explicit Group(int size) {
    for (int rank = 0; rank < size; ++rank) {
      memories_.push_back(std::make_shared<Memory>(size));
    }
    for (int rank = 0; rank < size; ++rank) {
      std::vector<Peer> peers(size);
      for (int peer = 0; peer < size; ++peer) {
        peers[peer].pid = getpid();
        peers[peer].process = open_process(getpid());
        peers[peer].memory = memories_[peer]->mapping();
      }
      contexts_.push_back(std::make_unique<Context>(rank, std::move(peers)));
    }
  }

  int size() const {
    return static_cast<int>(contexts_.size());
  }
  Context& context(int rank) const {
    return *contexts_[rank];
  }
  Control& control(int rank) const {
    return memories_[rank]->mapping()->control();
  }
  at::Tensor in_heap(int rank, int64_t count) const {
    return memories_[rank]->tensor(count, c10::kFloat);
  }

 private:
  std::vector<std::shared_ptr<Memory>> memories_;
  std::vector<std::unique_ptr<Context>> contexts_;
};

/// A collective of one rank, which can be done again.
class Part {
 public:
  Part(const Group& group, int rank, int number, Kind kind, int64_t count)
      : context_(group.context(rank)), kind_(kind) {
    for (int from = 0; from < group.size(); ++from) {
      // No two collectives have the same values; sums are exact.
      inputs_.push_back(at::arange(count, at::kFloat)
                            .remainder_(97)
                            .add_(100 * from + 1000 * number));
    }
    if (kind == Kind::kGather) {
      for (const auto& input : inputs_) {
        results_.push_back(at::empty_like(input));
      }
      expected_ = inputs_;
      return;
    }
    const bool in_heap =
        kind == Kind::kInHeaps || (kind == Kind::kInSomeHeaps && rank == 1);
    results_ = {in_heap ? group.in_heap(rank, count) : at::empty({count})};
    expected_ = {at::stack(inputs_).sum(0)};
  }

  std::unique_ptr<Collective> begin() const {
    const auto& own = inputs_[context_.rank()];
    if (kind_ != Kind::kGather) {
      results_[0].copy_(own);
      return std::make_unique<AllReduce>(
          context_, results_[0], c10d::ReduceOp(c10d::ReduceOp::SUM));
    }
    for (const auto& result : results_) {
      result.zero_();
    }
    const ExchangeKind gather{c10d::OpType::ALLGATHER, c10::kFloat};
    return std::make_unique<Exchange>(context_, gather, Tensors{own}, results_);
  }

  bool is_right() const {
    return std::equal(
        results_.begin(),
        results_.end(),
        expected_.begin(),
        [](const auto& a, const auto& b) {
          return std::memcmp(
                     a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
        });
  }

 private:
  Context& context_;
  const Kind kind_;
  Tensors inputs_; // of all ranks
  Tensors results_;
  Tensors expected_;
};

/// The collectives of one rank, one after another.
class Rank {
 public:
  Rank(
      const Group& group,
      int rank,
      const std::vector<Kind>& kinds,
      int64_t count)
      : context_(group.context(rank)) {
    for (const auto kind : kinds) {
      const auto number = static_cast<int>(parts_.size());
      parts_.emplace_back(group, rank, number, kind, count);
    }
  }

  void begin() {
    Collectives collectives;
    for (const auto& part : parts_) {
      collectives.push_back(part.begin());
    }
    chain_ = std::make_unique<Chain>(std::move(collectives));
  }

  /// Does what follows on a step of all ranks. Returns whether more follows.
  bool advance() {
    if (!chain_->step()) {
      return false;
    }
    context_.finish_step();
    return true;
  }

  bool is_right() const {
    return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) {
      return part.is_right();
    });
  }

 private:
  Context& context_;
  std::vector<Part> parts_;
  std::unique_ptr<Chain> chain_;
};

/// The orders in which the ranks do one step.
std::vector<std::vector<int>> orders(int size) {
  std::vector<int> order(size);
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::vector<int>> all;
  do {
    all.push_back(order);
  } while (std::next_permutation(order.begin(), order.end()));
  return all;
}

/// Runs the collectives once for each sequence of orders; returns how often.
int64_t run_all_orders(
    const Group& group,
    const std::vector<Kind>& kinds,
    int64_t count) {
  std::vector<Rank> ranks;
  for (int rank = 0; rank < group.size(); ++rank) {
    ranks.emplace_back(group, rank, kinds, count);
  }
  const auto all = orders(group.size());
  std::vector<size_t> choices; // by step
  int64_t runs = 0;
  do {
    for (auto& rank : ranks) {
      rank.begin();
    }
    int going_on = group.size();
    for (size_t step = 0; going_on > 0; ++step) {
      choices.resize(std::max(choices.size(), step + 1));
      going_on = 0;
      for (const int rank : all[choices[step]]) {
        going_on += ranks[rank].advance();
      }
      if (going_on > 0 && going_on < group.size()) {
        FAIL("some ranks do more steps than others");
      }
    }
    ++runs;
    for (const auto& rank : ranks) {
      if (!rank.is_right()) {
        FAIL("wrong result with the orders " << choices);
      }
    }
    while (!choices.empty() && ++choices.back() == all.size()) {
      choices.pop_back();
    }
  } while (!choices.empty());
  return runs;
}

int64_t power(int64_t base, int exponent) {
  return exponent == 0 ? 1 : base * power(base, exponent - 1);
}

TEST_CASE("three ranks' collectives are right in each order of their steps") {
  constexpr int64_t kCount = 200; // in slices of 64, 64 and 72 elements
  const Group group(3);
  const std::vector<std::pair<Kind, int>> kinds{
      // The number of steps before the last one.
      {Kind::kInSlots, 1},
      {Kind::kInHeaps, 2},
      {Kind::kInSomeHeaps, 2},
      {Kind::kGather, 1}};
  for (const auto& [first, steps] : kinds) {
    for (const auto& [second, more] : kinds) {
      CAPTURE(int(first), int(second));
      REQUIRE(
          run_all_orders(group, {first, second}, kCount) ==
          power(6, steps + more + 1));
    }
  }
}

TEST_CASE("ranks' pieces are right in each order of their steps") {
  constexpr int64_t kTwoPieces = kSlotBytes / sizeof(float) + 10;
  const Group three(3);
  for (const auto kind : {Kind::kInSlots, Kind::kGather}) {
    REQUIRE(run_all_orders(three, {kind}, kTwoPieces) == power(6, 3));
  }
  constexpr int64_t kShared = 9000; // so many that each rank reduces a slice
  const Group four(4);
  for (const auto kind : {Kind::kInSlots, Kind::kInHeaps}) {
    REQUIRE(run_all_orders(four, {kind}, kShared) == power(24, 3));
  }
}

TEST_CASE("threads that are ranks access no byte at the same time") {
  using namespace std::chrono_literals;
  for (const int size : {3, 4}) {
    const Group group(size);
    std::vector<std::thread> threads;
    std::vector<int> right(size);
    for (int number = 0; number < size; ++number) {
      threads.emplace_back([&, number] {
        for (const int64_t count : {200, 9000, 600000}) {
          Rank rank(
              group,
              number,
              {Kind::kInSlots,
               Kind::kInHeaps,
               Kind::kGather,
               Kind::kInSomeHeaps,
               Kind::kInSlots,
               Kind::kInHeaps,
               Kind::kInSlots},
              count);
          rank.begin();
          while (rank.advance()) {
            while (!group.context(number).all_finished(
                Context::Clock::now() + 1s, 0ns)) {
            }
          }
          right[number] += rank.is_right();
        }
      });
    }
    for (auto& thread : threads) {
      thread.join();
    }
    REQUIRE(right == std::vector<int>(size, 3));
  }
}

TEST_CASE("a rank that fails after a step of all ranks does not undo it") {
  using namespace std::chrono_literals;
  const Group group(200); // so many that looking for failures takes a while
  const int last = group.size() - 1;
  for (int step = 0; step < 2000; ++step) {
    std::atomic<int> ready{0};
    for (int rank = 0; rank < last; ++rank) {
      group.context(rank).finish_step();
    }
    std::thread thread([&] {
      ready = 1;
      for (int look = 0; look < step || ready == 1; ++look) { // a moment later
        if (look >= step) {
          std::this_thread::yield();
        }
      }
      group.context(last).finish_step();
      group.context(last).abort("a later failure");
    });
    while (ready == 0) {
      std::this_thread::yield();
    }
    ready = 2;
    std::string error;
    try {
      while (!group.context(0).all_finished(Context::Clock::now() + 1s, 0ns)) {
      }
    } catch (const std::exception& thrown) {
      error = thrown.what();
    }
    thread.join();
    REQUIRE(error == "");
    group.control(last).failed = 0;
  }
}

} // namespace ddp::test::shm_interleavings_test
