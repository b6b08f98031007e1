// Connecting ranks that have met.

#include <tests/support/catch.h>
#include <tests/support/failures.h>
#include <tests/support/ranks.h>

#include <ddp/process_group/process_group_impl.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <cstdlib>

namespace connecting_test {

using ddp::ProcessGroup;
using ddp::test::ranks;

TEST_CASE("a rank that cannot connect is named by the others") {
  ranks(
      3,
      [] {
        const bool bad = std::getenv("RANK") == std::string("1");
        if (bad) {
          setenv("GLOO_SOCKET_IFNAME", "no-such-one", /*replace=*/1);
        }
        const auto start = ddp::test::Clock::now();
        const auto text = ddp::test::error_of(
            [] { (void)ddp::init_process_group(ddp::test::kTimeout); });
        REQUIRE_THAT(
            text,
            ContainsSubstring("connecting over gloo failed") &&
                ContainsSubstring("no-such-one"));
        if (!bad) {
          REQUIRE_THAT(text, ContainsSubstring("because rank 1 of 3 on host"));
        }
        REQUIRE(ddp::test::seconds_since(start) < 20);
      },
      ddp::test::RankOptions());
}

TEST_CASE("ranks that do not come to connect are named") {
  ranks(
      3,
      [] {
        const auto world = ddp::init_process_group(
            ddp::ProcessGroupOptions().timeout(std::chrono::seconds(5)));
        if (world.rank() != 2) {
          const auto& whole = ddp::detail::ProcessGroupImpl::of(world);
          ddp::detail::ProcessGroupImpl part;
          part.rank = whole.rank;
          part.size = whole.size;
          part.backend = whole.backend;
          part.timeout = whole.timeout;
          part.address = whole.address;
          part.hosts = whole.hosts;
          part.store =
              c10::make_intrusive<c10d::PrefixStore>("part", whole.store);
          part.board = whole.board;
          part.scope = "/part";
          const auto start = ddp::test::Clock::now();
          REQUIRE_THAT(
              ddp::test::error_of([&] { ddp::detail::connect(part); }),
              ContainsSubstring("rank 2 of 3 has not come to connect"));
          REQUIRE(ddp::test::seconds_since(start) < 15);
        }
        ddp::test::meet_at_store(world, {"0", "1", "2"});
      },
      ddp::test::RankOptions());
}

} // namespace connecting_test
