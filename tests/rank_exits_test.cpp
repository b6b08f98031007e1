// The processes that the tests start.

#include <tests/support/child.h>
#include <tests/support/ranks.h>

namespace ddp::test::rank_exits_test {

TEST_CASE("a process fails by a failed CHECK as by a failed REQUIRE") {
  for (const bool requires_it : {false, true}) {
    auto process = child([requires_it] {
      CHECK(requires_it);
      REQUIRE(!requires_it);
      std::cout << "went on" << std::endl;
    });
    const auto outcome = process.finish(kLong);
    REQUIRE(outcome.exit_code == 1);
    REQUIRE(
        (outcome.output.find("went on") == std::string::npos) == requires_it);
  }
}

} // namespace ddp::test::rank_exits_test
