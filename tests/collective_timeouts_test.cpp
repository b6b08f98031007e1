// Each collective names the rank for which it waited in vain.
#include <tests/support/failures.h>

#include <ddp/ddp.h>

namespace ddp::test::collective_timeouts_test {

using std::chrono::seconds;

struct Call {
  std::string name; ///< as in errors
  std::function<void(const ProcessGroup&)> make;
};

/// Calls in which ranks 0 and 2 wait for rank 1.
std::vector<Call> calls() {
  const auto ones = [] { return torch::ones({2}); };
  return {
      {"all_reduce of 2 Float",
       [=](const auto& own) { own.all_reduce(ones()); }},
      {"all_reduce_async of 2 Float",
       [=](const auto& own) {
         auto tensor = ones();
         own.all_reduce_async(tensor).wait();
       }},
      {"broadcast of 2 Float from rank 1",
       [=](const auto& own) { own.broadcast(ones(), 1); }},
      {"broadcast_async of 2 Float from rank 1",
       [=](const auto& own) {
         auto tensor = ones();
         own.broadcast_async(tensor, 1).wait();
       }},
      {"all_gather", [=](const auto& own) { own.all_gather(ones()); }},
      {"barrier", [](const auto& own) { own.barrier(); }},
      {"scatter from rank 1: all_gather",
       [=](const auto& own) { scatter(ones(), own, 1); }},
      {"gather to rank 0: all_gather",
       [=](const auto& own) { gather(ones(), own, 0); }}};
}

/// Each call uses a new group, since a failed group cannot be used again.
void check_timeouts(const ProcessGroup& group) {
  for (const auto& [name, make] : calls()) {
    INFO(name);
    const auto own = group.duplicate();
    if (own.rank() != 1) {
      const auto start = Clock::now();
      const auto error = error_of([&, &call = make] { call(own); });
      REQUIRE_THAT(
          error, Has("timed out after 3 s", "rank 1 has not reached " + name));
      REQUIRE(seconds_since(start) < 15);
    }
    meet_at_store(own, {"0", "1", "2"});
  }
  group.barrier(); // the other groups' failures are not this group's
}

RANKS_TEST(
    "over gloo each collective names the rank that did not come",
    3,
    ProcessGroupOptions().backend("gloo").timeout(seconds(3)),
    RankOptions().timeout(seconds(120))) {
  check_timeouts(group);
}

RANKS_TEST(
    "over shared memory each collective names the rank that did not come",
    3,
    ProcessGroupOptions().backend("shm").timeout(seconds(3)),
    RankOptions().timeout(seconds(120))) {
  check_timeouts(group);
}

} // namespace ddp::test::collective_timeouts_test
