#include <tests/support/ranks.h>

#include <ddp/seed.h>

using ddp::ProcessGroup;
using ddp::test::ranks;

TEST_CASE("manual_seed gives every rank rank 0's seed and equal states") {
  ranks(3, [](ProcessGroup group) {
    const uint64_t mine = 0xFFFFFFFF00000000ULL + group.rank();
    REQUIRE(ddp::manual_seed(mine, group) == 0xFFFFFFFF00000000ULL);
    const auto drawn = torch::randn({4});
    for (const auto& other : group.all_gather(drawn)) {
      REQUIRE(other.equal(drawn));
    }
  });
}
