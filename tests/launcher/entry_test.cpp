// What nodes write into the job's log, and what of it is taken.
#include <tests/support/catch_plain.h>

#include <nlohmann/json.hpp>

#include <launcher/rendezvous/log/entry.h>

namespace ddp::test::entry_test {

using nlohmann::json;

Entry entry_of(Entry::Type type) {
  Entry entry;
  entry.type = type;
  entry.from = "a1";
  entry.sequence = 1;
  entry.epoch = 1;
  if (type == Entry::Type::kStart) {
    entry.address = "10.0.0.1";
  }
  entry.port = 29500;
  entry.node.id = "a1";
  entry.node.host = "node-1.local";
  entry.node.address = "10.0.0.1";
  entry.plan.epoch = 1;
  entry.plan.nodes.resize(1);
  entry.plan.nodes[0].id = "a1";
  return entry;
}

// Whether an entry is taken that has `value` at `place`.
bool takes(Entry::Type type, const char* place, const json& value) {
  json entry = json::parse(entry_text(entry_of(type)));
  entry[json::json_pointer(place)] = value;
  return parse_entry(entry.dump()).has_value();
}

TEST_CASE("entries are read as they were written", "[unit]") {
  for (const auto type :
       {Entry::Type::kJoin, Entry::Type::kPlan, Entry::Type::kStart}) {
    const std::string text = entry_text(entry_of(type));
    CAPTURE(text);
    const auto entry = parse_entry(text);
    REQUIRE(entry);
    CHECK(entry_text(*entry) == text);
  }
}

TEST_CASE("an address in an entry is one", "[unit]") {
  for (const char* right :
       {"10.9.0.1", "::1", "fd00::2", "fe80::1%eth0", "::ffff:10.0.0.1"}) {
    CAPTURE(right);
    CHECK(takes(Entry::Type::kStart, "/address", right));
    CHECK(takes(Entry::Type::kJoin, "/node/address", right));
  }
  for (const char* wrong :
       {"",
        "node1",
        "10.0.0",
        "10.0.0.1 ",
        "10.0.0.1\nLD_PRELOAD=/tmp/x.so",
        "fe80::1%eth0\nLD_PRELOAD=/tmp/x.so",
        "fe80::1%",
        "10.0.0.1%eth0",
        "fe80::1%an-interface-of-any-length"}) {
    CAPTURE(wrong);
    CHECK_FALSE(takes(Entry::Type::kStart, "/address", wrong));
    CHECK_FALSE(takes(Entry::Type::kJoin, "/node/address", wrong));
  }
}

TEST_CASE("a node in an entry has a name on one line", "[unit]") {
  for (const char* wrong : {"", "a b", "a\nb 99", "a\t", "\x1b[2J"}) {
    CAPTURE(wrong);
    CHECK_FALSE(takes(Entry::Type::kStart, "/from", wrong));
    CHECK_FALSE(takes(Entry::Type::kJoin, "/node/id", wrong));
    CHECK_FALSE(takes(Entry::Type::kPlan, "/plan/nodes/0", wrong));
    CHECK_FALSE(takes(Entry::Type::kJoin, "/node/host", wrong));
  }
  CHECK_FALSE(takes(Entry::Type::kJoin, "/node/host", std::string(300, 'a')));
  CHECK_FALSE(takes(Entry::Type::kLost, "/about", "a\nb"));
  CHECK(takes(Entry::Type::kLost, "/about", "b2"));
  // What no option can be.
  CHECK_FALSE(takes(Entry::Type::kJoin, "/node/max_nodes", int64_t{1} << 32));
  CHECK_FALSE(takes(Entry::Type::kJoin, "/node/min_nodes", -1));
  constexpr int most = std::numeric_limits<int>::max();
  CHECK(takes(Entry::Type::kJoin, "/node/max_restarts", most));
  CHECK(takes(Entry::Type::kPlan, "/plan/max_restarts", most));
}

TEST_CASE("what nests deep is no entry", "[unit]") {
  json entry = json::parse(entry_text(entry_of(Entry::Type::kEnd)));
  entry["text"] = "@";
  std::string text = entry.dump();
  const size_t depth = 20000;
  text.replace(
      text.find("\"@\""), 3, std::string(depth, '[') + std::string(depth, ']'));
  CHECK_FALSE(parse_entry(text));
}

} // namespace ddp::test::entry_test
