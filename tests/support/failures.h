#pragma once

#include <tests/support/ranks.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace ddp::test {

using Clock = std::chrono::steady_clock;

// Far longer than the tests allow, so that they detect a wait for this timeout.
inline const auto kTimeout =
    ProcessGroupOptions().timeout(std::chrono::seconds(60));

/// For ranks that must end before kTimeout.
inline const auto kPrompt = RankOptions().timeout(std::chrono::seconds(30));

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Whether the condition becomes true within `time`.
template <typename Condition>
bool becomes_true(
    Condition&& condition,
    std::chrono::seconds time = std::chrono::seconds(30)) {
  const auto start = Clock::now();
  while (!condition()) {
    if (Clock::now() - start > time) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

inline void throw_boom() {
  throw std::runtime_error("boom in forward");
}

/// Ends this process like an uncaught exception. An exception of the main
/// thread does not suffice, since the tests' processes catch it.
inline void throw_uncaught() {
  std::thread(throw_boom).join();
}

/// The text of the error that `function` throws.
template <typename Error = c10::DistBackendError, typename Function>
std::string error_of(Function&& function) {
  const auto text = words_of<Error>(function);
  REQUIRE(!text.empty());
  return text;
}

inline std::string all_reduce_error(const ProcessGroup& group) {
  auto tensor = torch::ones({4});
  return error_of([&] { group.all_reduce(tensor); });
}

/// Returns when rank 0's process, and thus the store, has ended.
inline void await_end_of_store(const ProcessGroup& group) {
  const auto ask_forever = [&] {
    for (;;) {
      group.store()->check({"any"});
    }
  };
  REQUIRE_THROWS_AS(ask_forever(), c10::DistNetworkError);
}

/// Returns when all ranks in `those`, which must include rank 0, have made this
/// call. Uses the store, which ends with rank 0.
inline void meet_at_store(
    const ProcessGroup& group,
    const std::vector<std::string>& those) {
  const auto store = group.store();
  for (const std::string step : {"here/", "left/"}) {
    store->set(step + std::to_string(group.rank()), std::string("1"));
    std::vector<std::string> keys;
    for (const auto& rank : those) {
      keys.push_back(step + rank);
    }
    if (step == "here/" || group.rank() == 0) {
      store->wait(keys, std::chrono::seconds(40));
    }
  }
}

} // namespace ddp::test
