// The rank that is named if every failed rank names another rank as the reason.
#include <tests/support/catch_plain.h>

#include <sys/mman.h>

#include <nlohmann/json.hpp>

#include <launcher/agent/heartbeat_reader.h>
#include <tests/launcher/rank_ends.h>

namespace ddp::test::blame_test {

using namespace std::chrono_literals;

RankEnd in(const std::string& activity, RankEnd end) {
  end.activity = activity;
  return end;
}

// A rank that names another rank as the reason of its failure.
RankEnd victim(int rank, const std::string& activity, int64_t time_ns) {
  RankEnd end = in(activity, ended(rank, kExit3, time_ns));
  end.error = error("timed out", time_ns);
  end.error->is_consequence = true;
  return end;
}

// The first line of ddprun's report, without its name.
std::string headline(std::vector<RankEnd> ends) {
  const std::string text = report_text(report_of(std::move(ends)));
  return text.substr(0, text.find('\n'));
}

nlohmann::json json_root(std::vector<RankEnd> ends) {
  return nlohmann::json::parse(report_json(report_of(std::move(ends))))["root"];
}

TEST_CASE("a rank that left while others waited is blamed", "[unit]") {
  const std::string save = "save_checkpoint(\"a: net.pt\")";
  const std::vector<RankEnd> ends = {
      victim(0, save + ": barrier", 900),
      in("after load", ended(1, 0, 20)),
      in(save, stopped(2))};
  CHECK(
      report_text(report_of(ends)) ==
      "rank 1 had ended with code 0 while ranks 0,2 waited in " + save +
          "\n"
          "  first victim: rank 0 (pid 100) exited with code 3 after 1.5 s, "
          "in " +
          save +
          ": barrier\n"
          "  reason: timed out\n"
          "  others: rank 1 had ended with code 0; rank 2 was stopped");
  const JobReport report = report_of(ends);
  CHECK(report.root == 0U); // its code is the job's
  const auto json = nlohmann::json::parse(report_json(report));
  CHECK(json["root"] == 1);
  CHECK(
      json["detail"] ==
      "rank 1 had ended with code 0 while ranks 0,2 waited in " + save);

  // The first of several to leave, if it is unknown what the others did.
  CHECK(
      headline({ended(0, 0, 30), victim(1, "", 900), ended(2, 0, 20)}) ==
      "ranks 0,2 had ended with code 0 before rank 1 failed");
  CHECK(json_root({ended(0, 0, 30), victim(1, "", 900), ended(2, 0, 20)}) == 2);
  // Its connections may have closed before its process has ended.
  CHECK(
      headline({victim(0, "", 900), ended(1, 0, 500'000'000)}) ==
      "rank 1 had ended with code 0 before rank 0 failed");
  // A rank that ends later, or fails itself, is not blamed.
  const std::string first = "rank 0 (pid 100) exited with code 3 after 1.5 s";
  CHECK(headline({victim(0, "", 900), ended(1, 0, 2'000'000'000)}) == first);
  CHECK(headline({ended(0, kExit3, 900), ended(1, 0, 20)}) == first);
}

TEST_CASE("a rank in another call than most is blamed", "[unit]") {
  const auto in_barrier = in("barrier", stopped(1));
  const auto ends = [](const RankEnd& one) {
    return std::vector<RankEnd>{
        victim(0, "save(\"net.pt\"): broadcast", 900),
        one,
        victim(2, "after save", 910)}; // its exception was caught
  };
  CHECK(
      headline(ends(in_barrier)) ==
      "rank 1 was in barrier while ranks 0,2 waited in save(\"net.pt\")");
  CHECK(json_root(ends(in_barrier)) == 1);
  // The blamed rank may also be the first to fail.
  CHECK_THAT(
      report_text(report_of(ends(victim(1, "barrier", 950)))),
      Has("\n  first victim: rank 0 "));
  CHECK_THAT(
      report_text(report_of(ends(victim(1, "barrier", 5)))),
      Has("\n  first failure: rank 1 "));
  CHECK(report_of(ends(in_barrier)).root == 0U);
  CHECK(
      headline(ends(victim(1, "barrier", 5))) ==
      "rank 1 was in barrier while ranks 0,2 waited in save(\"net.pt\")");
  CHECK(
      headline(ends(in("after step 7", stopped(1)))) ==
      "rank 1 was in no call to ddp (after step 7) while ranks 0,2 waited in "
      "save(\"net.pt\")");
  CHECK(
      headline(
          {in("after step 7", stopped(0)),
           victim(1, "save", 1),
           in("after step 8", stopped(2))}) ==
      "rank 1 was in save while ranks 0,2 were in no call to ddp");
  CHECK(
      headline(
          {victim(0, "a", 1),
           victim(1, "b", 2),
           victim(2, "a", 3),
           victim(3, "c", 4)}) ==
      "rank 1 was in b and rank 3 was in c while ranks 0,2 waited in a");
}

TEST_CASE("a call is the same with and without its arguments", "[unit]") {
  const auto first = [](const std::string& one, const std::string& other) {
    return headline(
        {victim(0, "after all_reduce", 1), // its exception was caught
         victim(1, one, 2),
         victim(2, other, 3)});
  };
  const std::string none =
      "rank 0 (pid 100) exited with code 3 after 1.5 s, after all_reduce";
  CHECK(first("all_reduce of 10 Float", "all_reduce of 10 Float") == none);
  CHECK(first("after all_reduce", "all_reduce of 10 Float") == none);
  CHECK(
      first("barrier", "all_reduce of 10 Float") ==
      "rank 1 was in barrier while ranks 0,2 waited in all_reduce of 10 Float");
  // It is unknown which of two calls rank 0 had made.
  CHECK(
      first("all_reduce of 9 Float", "all_reduce of 10 Float") ==
      "rank 1 waited in all_reduce of 9 Float while rank 2 waited in "
      "all_reduce of 10 Float");
}

TEST_CASE("of calls with equally many ranks none is blamed", "[unit]") {
  const std::vector<RankEnd> ends = {
      victim(0, "barrier", 1), victim(1, "all_reduce", 2)};
  CHECK(
      headline(ends) ==
      "rank 0 waited in barrier while rank 1 waited in all_reduce");
  CHECK_THAT(report_text(report_of(ends)), Has("\n  first failure: "));
  CHECK(json_root(ends).is_null());
  std::vector<RankEnd> many;
  for (int rank = 0; rank < 9; ++rank) {
    many.push_back(victim(rank, "call " + std::to_string(rank), rank));
  }
  CHECK_THAT(
      headline(many), Has("rank 4 waited in call 4 and others elsewhere"));
}

TEST_CASE("ranks in one call are not set apart", "[unit]") {
  const std::string first = "rank 0 (pid 100) exited with code 3 after 1.5 s";
  const auto beside = [&](const RankEnd& other) {
    return headline(
        {victim(0, "bucket 2 of 2, step 4", 900),
         victim(1, "bucket 2 of 2, step 4", 901),
         other});
  };
  const std::string in_bucket = first + ", in bucket 2 of 2, step 4";
  CHECK(beside(victim(2, "bucket 1 of 2, step 5", 9000)) == in_bucket);
  const std::string of_critic = "bucket 1 of 1, step 4 of Reducer 1, of 'a'";
  CHECK_THAT(
      headline(
          {victim(0, of_critic, 900),
           victim(1, of_critic, 901),
           victim(2, "bucket 1 of 1, step 4 of Reducer 2, of 'b'", 902)}),
      Has("rank 2 was in the reduction of gradients of Reducer 2, of 'b' "
          "while ranks 0-1 waited in the reduction of gradients of Reducer 1, "
          "of 'a'"));
  CHECK(beside(stopped(2)) == in_bucket); // it does not use ddp
  // Its activity when it was stopped does not show its activity before.
  auto obedient = in("shutdown", stopped(2));
  obedient.state = RankState();
  obedient.state.asked_to_stop();
  obedient.state.ended(0, 1600ms);
  CHECK(beside(obedient) == in_bucket);
  CHECK(beside(victim(2, "after step 4", 9000)) == in_bucket);
  // A rank's own failure is the reason, whatever the others called.
  CHECK(
      headline(
          {ended(0, kExit3, 900),
           in("barrier", stopped(1)),
           victim(2, "save", 1)}) == first);
  // While ranks run, their next calls are unknown.
  CHECK_FALSE(
      blame_caller({victim(0, "save", 1), victim(1, "barrier", 2), RankEnd()}));
}

TEST_CASE("no rank outside the group that failed is blamed", "[unit]") {
  for (const RankEnd& other :
       {ended(2, 0, 20), in("bucket 1 of 1, step 4", stopped(2))}) {
    auto first = victim(0, "barrier", 900);
    const auto beside = [&] {
      return std::vector<RankEnd>{first, in("barrier", stopped(1)), other};
    };
    CHECK_THAT(headline(beside()), Has("rank 2 "));
    first.failed_in_part = true;
    CHECK(
        headline(beside()) ==
        "rank 0 (pid 100) exited with code 3 after 1.5 s, in barrier");
    CHECK(json_root(beside()) == 0);
  }
}

TEST_CASE(
    "what failed because of another rank is over after a pause",
    "[unit]") {
  auto reader = HeartbeatReader::make();
  constexpr auto kAccess = PROT_READ | PROT_WRITE;
  void* memory =
      mmap(nullptr, sizeof(RankPage), kAccess, MAP_SHARED, reader.fd(), 0);
  REQUIRE(memory != MAP_FAILED);
  auto& page = static_cast<RankPage*>(memory)->heartbeat;
  page.version = HeartbeatPage::kVersion;
  page.failed_by_another = 3;
  REQUIRE(reader.read()->failed_by_another == 3);
  reader.end_pause(1, {});
  REQUIRE(reader.read()->failed_by_another == 0);
  munmap(memory, sizeof(RankPage));
}

} // namespace ddp::test::blame_test
