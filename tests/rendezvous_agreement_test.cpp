// The settings on which ranks must agree before they form a group.
#include <ddp/rendezvous/rank_info.h>
#include <tests/support/failures.h>
#include <tests/support/free_port.h>
#include <nlohmann/json.hpp>

namespace ddp::test::rendezvous_agreement_test {

TEST_CASE("what no rank writes into the store is an error of its kind") {
  for (const std::string text : {"", "{", "[1]", "{}", "null"}) {
    REQUIRE_THROWS_AS(to_rank_info(parse_message(text)), c10::DistStoreError);
  }
  RankInfo own;
  own.options = {{"backend", "gloo"}};
  REQUIRE_THROWS_WITH(
      check_same_options({own, {}}, "h:1"),
      Has("backend (rank 0: gloo; rank 1: none)"));
}

TEST_CASE("ranks that were told different sizes all say so at once") {
  for (const int larger : {0, 1, 2}) {
    const auto outcomes = ranks(3, [larger] {
      const auto size = own_rank() == larger ? 4 : 3;
      const auto start = Clock::now();
      REQUIRE_THROWS_WITH(
          init_process_group(ProcessGroupOptions().world_size(size)),
          Has("WORLD_SIZE",
              "rank 0 has " + std::string(larger == 0 ? "4" : "3")));
      REQUIRE(seconds_since(start) < 20);
    });
  }
}

STARTED_TEST("a rank beyond rank 0's world is told so at once") {
  const auto size = own_rank() == 2 ? 3 : 2; // outside rank 0's world
  const auto flag = folder + "rank 2 comes";
  if (own_rank() == 2) {
    std::ofstream(flag).flush();
  } else if (own_rank() == 1) { // ranks 0 and 1 must not start without it
    await(flag);
    std::this_thread::sleep_for(std::chrono::seconds(3));
  }
  REQUIRE_THROWS_WITH(
      init_process_group(ProcessGroupOptions().world_size(size)),
      Has("WORLD_SIZE", "rank 0 has 2"));
}

TEST_CASE("who comes after the others were told of different sizes is told") {
  for (const bool rank_0_is_smaller : {false, true}) {
    const SharedFolder folder;
    ranks(3, [&] {
      const bool smaller = own_rank() == (rank_0_is_smaller ? 0 : 1);
      const auto flag = folder.path + "rank 1 was told";
      if (own_rank() == 2) {
        await(flag);
      }
      REQUIRE_THROWS_WITH(
          init_process_group(ProcessGroupOptions().world_size(smaller ? 2 : 3)),
          Has("different values of WORLD_SIZE: rank 1 has "));
      if (own_rank() == 1) {
        std::ofstream(flag).flush();
      }
    });
  }
}

STARTED_TEST(
    "options that decide how the group forms are the same on all ranks") {
  REQUIRE_THROWS_WITH(
      init_process_group(
          ProcessGroupOptions().backend(own_rank() == 1 ? "shm" : "gloo")),
      Has("different options: backend (ranks 0 and 2: "
          "gloo; rank 1: shm). Give all",
          "DDP_ variables"));
}

STARTED_TEST("times that differ between ranks are told of, once") {
  auto options = ProcessGroupOptions();
  if (own_rank() == 1) {
    options.timeout(std::chrono::seconds(40));
    options.wait_notice(std::chrono::seconds(20));
  }
  const auto texts =
      warnings_of([&] { init_process_group(options).barrier(); });
  REQUIRE(texts.size() == (own_rank() == 0 ? 1 : 0));
  if (own_rank() == 0) {
    REQUIRE_THAT(
        texts[0],
        Has(c10::str("the ranks at 127.0.0.1:", std::getenv("MASTER_PORT")) +
                " have",
            "different options: DDP_TIMEOUT (ranks 0 and 2: 600 s; rank 1: 40 "
            "s), DDP_WAIT_NOTICE (ranks 0 and 2: 10 s; rank 1: 20 s). Give all "
            "ranks the same ProcessGroupOptions and DDP_ variables: the "
            "shortest applies to all ranks"));
  }
}

STARTED_TEST("a rank outside the world is told of on all ranks") {
  const auto start = Clock::now();
  const bool outside = own_rank() == 2; // has RANK=7
  REQUIRE_THROWS_WITH(
      init_process_group(ProcessGroupOptions().rank(outside ? 7 : own_rank())),
      Has("rank 7 is outside the world: WORLD_SIZE is 3, "
          "so RANK must be from 0 to 2"));
  REQUIRE(seconds_since(start) < 20);
}

STARTED_TEST("a rank that alone compares its calls is told so at once") {
  if (own_rank() == 1) {
    setenv("DDP_DEBUG", "detail", 1);
  }
  REQUIRE_THROWS_WITH(
      init_process_group(),
      Has("different options: DDP_DEBUG (ranks 0 and 2: "
          "off or info; rank 1: detail)"));
}

} // namespace ddp::test::rendezvous_agreement_test
