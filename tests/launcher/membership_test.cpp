// What the nodes of a job know by its log.
#include <launcher/rendezvous/log/membership.h>
#include <tests/support/catch_plain.h>

namespace ddp::test::membership_test {

// A plan has that node only.
Entry entry_of(Entry::Type type, const std::string& from, int epoch) {
  Entry entry;
  entry.type = type;
  entry.from = from;
  entry.epoch = epoch;
  entry.node.id = from;
  entry.plan.epoch = epoch;
  entry.plan.nodes = {entry.node};
  return entry;
}

TEST_CASE("Nodes get the ranks that they ask for", "[unit]") {
  const auto order = [](std::vector<std::pair<const char*, int>> nodes) {
    std::vector<NodeInfo> infos;
    for (const auto& [host, rank] : nodes) {
      infos.emplace_back();
      infos.back().host = host;
      infos.back().wanted_rank = rank;
    }
    return hosts_of(in_order(infos, {}));
  };
  CHECK(order({{"n10", -1}, {"n2", -1}, {"n1", -1}}) == "n1, n2, n10");
  CHECK(order({{"n0", -1}, {"n1", 1}}) == "n0, n1");
  CHECK(order({{"a", 2}, {"b", -1}, {"c", 0}}) == "c, b, a");
  CHECK(order({{"a", 5}, {"b", 3}}) == "b, a");
  CHECK(order({{"a", 5}, {"b", -1}}) == "b, a");
}

TEST_CASE("A node that was lost does not join by the same id", "[unit]") {
  const bool outlives_jobs = GENERATE(false, true);
  Membership log(outlives_jobs);
  log.apply(entry_of(Entry::Type::kJoin, "a", 0));
  log.apply(entry_of(Entry::Type::kJoin, "b", 0));
  Entry lost = entry_of(Entry::Type::kLost, "a", 0);
  lost.about = "b";
  log.apply(lost);
  log.apply(entry_of(Entry::Type::kJoin, "b", 0));
  CHECK_FALSE(log.has("b"));
  if (outlives_jobs) {
    log.apply(entry_of(Entry::Type::kEnd, "a", 0));
    log.apply(entry_of(Entry::Type::kJoin, "c", 0));
    log.apply(entry_of(Entry::Type::kJoin, "b", 0));
    CHECK(log.has("c"));
    CHECK_FALSE(log.has("b"));
  }
}

TEST_CASE("A job after another one, in a log that outlives both", "[unit]") {
  Membership log(true);
  const auto say = [&](Entry::Type type, const char* from, int epoch) {
    log.apply(entry_of(type, from, epoch));
  };
  for (const char* node : {"a", "b"}) {
    say(Entry::Type::kJoin, node, 0);
    REQUIRE(log.phase == Membership::Phase::kGathering);
    say(Entry::Type::kPlan, node, 1);
    say(Entry::Type::kReady, node, 1);
    say(Entry::Type::kStart, node, 1);
    REQUIRE(log.phase == Membership::Phase::kRunning);
    say(Entry::Type::kFinished, node, 1);
    REQUIRE(log.phase == Membership::Phase::kEnded);
  }
}

} // namespace ddp::test::membership_test
