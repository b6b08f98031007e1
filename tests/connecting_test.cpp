// Connecting ranks that have met.

#include <tests/support/failures.h>

#include <ddp/failure/heartbeat.h>
#include <ddp/process_group/process_group_impl.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace ddp::test::connecting_test {

STARTED_TEST("a rank that cannot connect is named by the others") {
  const bool bad = own_rank() == 1;
  if (bad) {
    setenv("GLOO_SOCKET_IFNAME", "no-such-one", /*replace=*/1);
  }
  const auto start = Clock::now();
  const auto text = error_of([] { (void)init_process_group(kTimeout); });
  REQUIRE_THAT(text, Has("connecting over gloo failed", "no-such-one"));
  if (!bad) {
    REQUIRE_THAT(text, Has("rank 1 of 3 on host"));
  }
  REQUIRE(seconds_since(start) < 20);
}

RANKS_TEST(
    "ranks that do not come to connect are named",
    3,
    ProcessGroupOptions().timeout(std::chrono::seconds(5))) {
  if (group.rank() != 2) {
    const auto& whole = detail::ProcessGroupImpl::of(group);
    detail::ProcessGroupImpl part;
    part.rank = whole.rank;
    part.size = whole.size;
    part.backend = whole.backend;
    part.timeout = whole.timeout;
    part.address = whole.address;
    part.hosts = whole.hosts;
    part.store = c10::make_intrusive<c10d::PrefixStore>("part", whole.store);
    part.board = whole.board;
    part.scope = "/part";
    const detail::heartbeat::Activity activity("split");
    const auto start = Clock::now();
    REQUIRE_THAT(
        error_of([&] { detail::connect(part); }),
        Has("; rank 2 has not come to split"));
    REQUIRE(seconds_since(start) < 15);
  }
  meet_at_store(group, {"0", "1", "2"});
}

} // namespace ddp::test::connecting_test
