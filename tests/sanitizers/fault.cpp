#include <tests/support/ranks.h>

#include <ddp/comm_hook.h>
#include <ddp/reducer.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

using ddp::ProcessGroup;
using ddp::Reducer;
using ddp::ReducerOptions;
using ddp::test::Outcome;

// Each test case commits a fault in a Reducer's hook, and passes if the
// sanitizer reports it: `fault race` under TSan, the others under ASan and
// UBSan.

namespace {

using FuturePointer = c10::intrusive_ptr<c10::ivalue::Future>;

/// Counts reductions on two threads at once: the main thread, where they begin,
/// and a thread of gloo, where they end.
struct RacyHook : ddp::CommHook {
  FuturePointer run(const ddp::GradBucket& bucket, const ProcessGroup& group)
      override {
    const auto store = group.store();
    if (group.rank() > 0) { // rank 0's ends after its callback is set
      store->get("racy_hook");
    }
    auto future = ddp::AllReduceHook().run(bucket, group);
    if (group.rank() == 0) {
      future->addCallback([this](auto&) { count_at_end(); });
      store->set("racy_hook", std::string("ready"));
      count_at_start();
    }
    return future;
  }

  void count_at_end() {
    ++count;
    ended.store(true, std::memory_order_relaxed);
  }

  void count_at_start() {
    // Relaxed, this orders the two in time and nothing else: what happens after
    // the wait for the future, or before a lock that the future takes, would
    // not be a race.
    while (!ended.load(std::memory_order_relaxed)) {
    }
    ++count;
  }

  // Kept apart: TSan remembers only four accesses to the same eight bytes.
  alignas(8) int count = 0;
  alignas(8) std::atomic<bool> ended{false};
};

/// Reads one gradient too many.
struct OverflowingHook : ddp::CommHook {
  FuturePointer run(const ddp::GradBucket& bucket, const ProcessGroup& group)
      override {
    sum_all(bucket.buffer);
    return ddp::AllReduceHook().run(bucket, group);
  }

  void sum_all(const at::Tensor& buffer) {
    const auto* values = buffer.const_data_ptr<float>();
    for (int64_t i = 0; i <= buffer.numel(); ++i) {
      sum += values[i];
    }
  }

  float sum = 0;
};

/// Loses copies of the gradients.
struct LeakingHook : ddp::CommHook {
  FuturePointer run(const ddp::GradBucket& bucket, const ProcessGroup& group)
      override {
    lose_copies(bucket.buffer);
    return ddp::AllReduceHook().run(bucket, group);
  }

  void lose_copies(const at::Tensor& buffer) {
    for (int i = 0; i < 10; ++i) { // the stack may still refer to the last
      copy = new float[buffer.numel()];
      copy[0] = buffer.const_data_ptr<float>()[0];
    }
    copy = nullptr;
  }

  float* volatile copy = nullptr;
};

/// Counts further than an int can.
struct UndefinedHook : ddp::CommHook {
  FuturePointer run(const ddp::GradBucket& bucket, const ProcessGroup& group)
      override {
    count_on();
    return ddp::AllReduceHook().run(bucket, group);
  }

  void count_on() {
    ++count;
  }

  int count = std::numeric_limits<int>::max();
};

template <typename Hook>
void backward_with(const ProcessGroup& group) {
  torch::nn::Linear net(3, 1);
  Reducer reducer(
      net, group, ReducerOptions().comm_hook(std::make_shared<Hook>()));
  net->forward(torch::ones({2, 3})).sum().backward();
}

/// Runs the backward on one rank for each exit code.
template <typename Hook>
std::vector<Outcome> outcomes_with(const std::vector<int>& exit_codes) {
  std::map<int, int> codes;
  for (const auto code : exit_codes) {
    codes.emplace(codes.size(), code);
  }
  return ddp::test::ranks(
      static_cast<int>(codes.size()),
      ddp::test::RankOptions().exit_codes(codes),
      [] { backward_with<Hook>(ddp::init_process_group()); });
}

/// Checks that the report that begins with `title` has all `parts`.
void require_report(
    const Outcome& outcome,
    const std::string& title,
    const std::vector<std::string>& parts) {
  const auto& output = outcome.output;
  INFO(output);
  const auto begin = output.find(title);
  REQUIRE(begin != std::string::npos);
  const auto end = output.find("SUMMARY: ", begin);
  for (const auto& part : parts) {
    REQUIRE(output.substr(begin, end - begin).find(part) != std::string::npos);
  }
}

} // namespace

TEST_CASE("race") {
  // 66 is TSan's exit code; rank 1 has no race.
  const auto outcomes = outcomes_with<RacyHook>({66, 0});
  require_report(
      outcomes[0],
      "WARNING: ThreadSanitizer: data race",
      {"count_at_start", "count_at_end"});
}

TEST_CASE("overflow") {
  for (const auto& outcome : outcomes_with<OverflowingHook>({1, 1, 1})) {
    require_report(
        outcome,
        "ERROR: AddressSanitizer: heap-buffer-overflow",
        {"READ of size 4", "sum_all"});
  }
}

TEST_CASE("leak") {
  for (const auto& outcome : outcomes_with<LeakingHook>({1, 1, 1})) {
    require_report(
        outcome,
        "ERROR: LeakSanitizer: detected memory leaks",
        {"lose_copies"});
  }
}

TEST_CASE("undefined") {
  for (const auto& outcome : outcomes_with<UndefinedHook>({1, 1, 1})) {
    require_report(
        outcome, "runtime error: signed integer overflow", {"count_on"});
  }
}
