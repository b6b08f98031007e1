// The agents' shared log: the entries that members post and read.
#include <tests/support/catch_plain.h>

#include <launcher/rendezvous/log/entry.h>
#include <tests/launcher/shared_log_fixture.h>
#include <nlohmann/json.hpp>

namespace ddp::test::shared_log_test {

// Runs Python code with a store connected to this port as `store`.
bool run_with_store(int port, const std::string& code) {
  const std::string command = std::string("\"$DDP_PYTHON\" -c '") +
      "from datetime import timedelta\n"
      "from torch.distributed import TCPStore\n"
      "store = TCPStore(\"127.0.0.1\", " +
      std::to_string(port) +
      ", is_master=False, wait_for_workers=False, "
      "timeout=timedelta(seconds=20))\n" +
      code + "'";
  return std::system(command.c_str()) == 0;
}

TEST_CASE("all read the same log, each entry once", "[rendezvous]") {
  Trio trio;
  CHECK(trio.host.nonce.size() == 32);
  CHECK(trio.second.nonce == trio.host.nonce);
  CHECK(trio.third.own_address == "127.0.0.1");
  constexpr int kPosts = 200;
  Texts expected;
  for (int i = 0; i < kPosts; ++i) {
    for (size_t m = 0; m < trio.all.size(); ++m) {
      const std::string text =
          std::to_string(m) + " " + std::to_string(i) + "\n" + char(i);
      trio.all[m]->log().post(text);
      expected.push_back(text);
    }
  }
  const auto has_all = [&](const LogProcess& each) {
    return each.entries.size() >= expected.size();
  };
  wait_until_all(trio.all, has_all);
  LogProcess late("d", "127.0.0.1", trio.port);
  wait_until_all({&late}, has_all);
  for (LogProcess* each : {&trio.host, &trio.second, &trio.third, &late}) {
    each->take();
    CHECK(each->entries == trio.host.entries);
  }
  Texts seen = trio.host.entries;
  // The entries of each member are in its order.
  for (size_t m = 0; m < trio.all.size(); ++m) {
    const std::string start_of = std::to_string(m) + " ";
    Texts own;
    std::copy_if(
        seen.begin(), seen.end(), std::back_inserter(own), [&](auto& text) {
          return text.rfind(start_of, 0) == 0;
        });
    REQUIRE(own.size() == kPosts);
    for (int i = 0; i < kPosts; ++i) {
      CHECK(own[i] == start_of + std::to_string(i) + "\n" + char(i));
    }
  }
  std::sort(seen.begin(), seen.end());
  std::sort(expected.begin(), expected.end());
  CHECK(seen == expected);
}

TEST_CASE("the same text from two members is two entries", "[rendezvous]") {
  Trio trio;
  trio.second.stop();
  trio.host.log().post("equal");
  wait_until(trio.all, [&] { return trio.host.entries.size() == 1; });
  trio.second.log().post("equal");
  trio.second.go_on();
  wait_until(trio.all, [&] { return trio.third.entries.size() == 2; });
}

TEST_CASE("the largest entry passes, a larger one throws", "[rendezvous]") {
  Trio trio;
  const std::string largest(kLargestEntry, 'x');
  for (int i = 0; i < 20; ++i) {
    trio.third.log().post(largest);
  }
  trio.third.log().post(""); // not an entry
  CHECK_THROWS_AS(trio.third.log().post(largest + "x"), std::length_error);
  trio.third.log().post("end");
  wait_until(trio.all, [&] {
    return trio.host.entries.size() >= 21 && trio.third.entries.size() >= 21;
  });
  CHECK(trio.host.entries[19] == largest);
  CHECK(trio.host.entries[20] == "end");
}

TEST_CASE("posts wait for a helper that hangs", "[rendezvous]") {
  Trio trio;
  trio.second.stop();
  constexpr size_t kPosts = 100; // more than a socket holds
  for (size_t i = 0; i < kPosts; ++i) {
    trio.second.log().post(std::string(kLargestEntry, 'x'));
  }
  trio.second.go_on(); // a post that waited for it would not get here
  wait_until(trio.all, [&] { return trio.host.entries.size() >= kPosts; });
}

TEST_CASE("beats of watched members rise", "[rendezvous]") {
  Trio trio;
  wait_until(trio.all, [&] { return trio.host.beat_events > 0; });
  CHECK(trio.host.beats.empty()); // arrives although no member is watched
  trio.host.watched = {"b", "c", "nobody"};
  wait_until(trio.all, [&] { return trio.host.beats.size() >= 2; });
  const auto before = trio.host.beats;
  wait_until(trio.all, [&] {
    return trio.host.beats["b"] > before.at("b") + 2 &&
        trio.host.beats["c"] > before.at("c") + 2;
  });
  CHECK(trio.host.beats.count("nobody") == 0);
  CHECK(trio.host.beats.count("a") == 0);

  trio.second.stop();
  trio.host.watched = {"a", "b"};
  wait_until(trio.all, [&] { return trio.host.beats.count("a") == 1; });
  const auto stopped = trio.host.beats;
  wait_until(
      trio.all, [&] { return trio.host.beats["a"] > stopped.at("a") + 3; });
  CHECK(trio.host.beats["b"] <= stopped.at("b") + 1);
  trio.second.go_on();
}

TEST_CASE("what others write into the store is passed over", "[rendezvous]") {
  Trio trio;
  python_with_torch(); // it forges what is in the store
  trio.second.log().post("first");
  wait_until(trio.all, [&] { return trio.third.entries.size() == 1; });
  // It reads the forged keys, and posts, after the others.
  trio.third.stop();
  trio.third.log().post("third");
  REQUIRE(run_with_store(
      trio.port,
      "def block(size):\n"
      "    return str(size) + \" \" + \"x\" * size\n"
      "store.set(\"log/1\", block(320 * 1024 + 1))\n"
      "store.set(\"log/2\", \"\")\n"
      "store.set(\"log/3\", \"nospace\")\n"
      "store.set(\"log/4\", \"2 x\")\n"
      "store.set(\"log/5\", \"-1 x\")\n"
      "store.set(\"log/6\", \"123\")\n"
      "store.set(\"log/7\", \"18446744073709551615 x\")\n"
      "store.set(\"log/8\", block(4 << 20))\n"
      "store.queue_push(\"posts\", \"x\" * (7 << 20))\n"
      "store.set(\"posts\", \"no queue\")\n"
      "store.set(\"beat/b\", \"no number\")\n"
      "store.set(\"beat/c\", \"1\")\n"));
  trio.host.watched = {"b"};
  wait_until(trio.all, [&] { return trio.host.beats.count("b") == 1; });
  trio.second.log().post("second");
  wait_until(trio.all, [&] {
    return trio.host.entries.size() == 2 && trio.second.entries.size() == 2;
  });
  trio.third.go_on();
  LogProcess late("d", "127.0.0.1", trio.port);
  const Texts expected = {"first", "second", "third"};
  wait_until_all(
      {&trio.host, &trio.second, &trio.third, &late},
      [&](const LogProcess& each) { return each.entries == expected; });
}

TEST_CASE("a store with a nonce of another kind is none", "[rendezvous]") {
  python_with_torch(); // it forges what is in the store
  Listener listener = listen_on("127.0.0.1", 0);
  const Process server([&] {
    dup2(listener.socket.get(), 100); // without O_CLOEXEC
    return execl(STORE_PATH, "ddprun-store", "100", nullptr);
  });
  listener.socket.reset();
  // The text would set the addresses of this host and the log.
  REQUIRE(run_with_store(
      listener.port, "store.set(\"nonce\", \"0\" * 17 + \" 6.6.6.6 far 66\")"));
  LogProcess member("a", "127.0.0.1", listener.port);
  wait_until({&member}, [&] { return !member.lost.empty(); });
  CHECK_THAT(member.lost, Has("not a ddprun store"));
  CHECK(member.own_address.empty());
}

// Entries that nodes write into the job's log, and their checks.

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

// Whether an entry with `value` at `place` is accepted.
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
  // Values that no option can have.
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

TEST_CASE("a fraction is no number of an entry", "[unit]") {
  auto entry = json::parse(entry_text(entry_of(Entry::Type::kEnd)));
  CHECK(parse_entry(entry.dump()));
  entry["sequence"] = 1e3; // 1e300 could not be converted
  CHECK_FALSE(parse_entry(entry.dump()));
}

} // namespace ddp::test::shared_log_test
