// The state of a job according to its log.
#include <tests/support/catch_plain.h>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <common/scheduler/launch_error.h>
#include <launcher/rendezvous/log/membership.h>
#include <launcher/rendezvous/rendezvous.h>
#include <launcher/sockets.h>
#include <tests/launcher/launched_job.h>
#include <tests/support/free_port.h>
#include <tests/support/temporary_folder.h>

namespace ddp::test::rendezvous_test {

// A plan has only that node.
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

TEST_CASE("A plan of the most nodes is an entry", "[unit]") {
  Entry plan = entry_of(Entry::Type::kPlan, "a", 1);
  plan.plan.nodes.resize(16384);
  for (NodeInfo& each : plan.plan.nodes) {
    each.id = random_hex(8);
  }
  const Authenticator authenticator("", "");
  const std::string sealed = authenticator.seal(entry_text(plan));
  CHECK(sealed.size() > 256 * 1024);
  CHECK(sealed.size() <= kLargestEntry);
  const auto read = parse_entry(authenticator.open(sealed).value());
  REQUIRE(read);
  CHECK(read->plan.nodes.size() == 16384);
  CHECK(read->plan.index_of(plan.plan.nodes.back().id) == 16383);
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

// A node with other options leaves, but may be in a plan before.
TEST_CASE("The leader's options tell whether a job must end", "[unit]") {
  const bool is_elastic = GENERATE(false, true);
  Membership log;
  const auto join = [&](const char* id, bool may_vary) {
    Entry entry = entry_of(Entry::Type::kJoin, id, 0);
    entry.node.max_nodes = 3;
    entry.node.min_nodes = may_vary ? 2 : 3;
    log.apply(entry);
  };
  join("c", is_elastic);
  join("a", !is_elastic);
  join("b", is_elastic);
  Entry plan = entry_of(Entry::Type::kPlan, "c", 1);
  plan.plan.nodes = {*log.find("a"), *log.find("b"), *log.find("c")};
  log.apply(plan);
  CHECK_FALSE(log.must_end());
  log.apply(entry_of(Entry::Type::kLeave, "a", 1));
  REQUIRE(log.phase == Membership::Phase::kStopping);
  CHECK(log.must_end() == !is_elastic);
  join("d", is_elastic);
  CHECK(log.has("d") == is_elastic);
}

TEST_CASE("A job after another one, in a log that outlives both", "[unit]") {
  Membership log(true);
  const auto say = [&](Entry::Type type, const char* from, int epoch) {
    log.apply(entry_of(type, from, epoch));
  };
  int epoch = 0; // continues, as the ranks of both may write checkpoints
  for (const char* node : {"a", "b"}) {
    say(Entry::Type::kJoin, node, 0);
    REQUIRE(log.phase == Membership::Phase::kGathering);
    REQUIRE(log.first_epoch == ++epoch);
    say(Entry::Type::kPlan, node, epoch);
    say(Entry::Type::kReady, node, epoch);
    say(Entry::Type::kStart, node, epoch);
    REQUIRE(log.phase == Membership::Phase::kRunning);
    say(Entry::Type::kFinished, node, epoch);
    REQUIRE(log.phase == Membership::Phase::kEnded);
  }
}

TEST_CASE("Nodes make no plan in the log of another job", "[unit]") {
  NodeOptions options;
  options.least = options.most = 2;
  NodeInfo self;
  self.id = "a";
  NodeStateMachine::Time now;
  NodeStateMachine machine(options, self, now);
  machine.connected("10.0.0.1", false, now);
  machine.untrusted_entry_read();
  Entry join = machine.take_actions().at(0).entry;
  machine.entry(join, now);
  join.from = join.node.id = "b";
  machine.entry(join, now);
  CHECK(machine.take_actions().empty());
  SECTION("whose end they await") {
    machine.log_lost("closed", now);
    const auto actions = machine.take_actions();
    REQUIRE(actions.size() == 1);
    CHECK(actions[0].kind == NodeStateMachine::Action::Kind::kBeginAnew);
  }
  SECTION("until they know that it is theirs") {
    join.from = join.node.id = "c";
    join.node.hosts_log = true;
    machine.entry(join, now);
    const auto actions = machine.take_actions();
    REQUIRE(actions.size() == 1);
    CHECK(actions[0].entry.type == Entry::Type::kPlan);
  }
  SECTION("and end with their own one, although its host was lost before") {
    join.from = join.node.id = "c";
    join.node.hosts_log = true;
    machine.entry(join, now);
    Entry lost;
    lost.type = Entry::Type::kLost;
    lost.from = "b";
    lost.about = "c";
    machine.entry(lost, now);
    machine.take_actions();
    machine.log_lost("closed", now);
    const auto actions = machine.take_actions();
    REQUIRE(actions.size() == 1);
    CHECK(actions[0].kind == NodeStateMachine::Action::Kind::kExit);
    CHECK(actions[0].code == kExitInfrastructure);
  }
}

TEST_CASE("A node whose lease has expired is lost at once", "[unit]") {
  NodeOptions options;
  options.least = options.most = 2;
  options.etcd.resize(1);
  NodeStateMachine::Time now;
  NodeInfo self;
  self.id = "a";
  NodeStateMachine machine(options, self, now);
  machine.connected("10.0.0.1", false, now);
  Entry join = machine.take_actions().at(0).entry;
  machine.entry(join, now);
  join.from = join.node.id = "b";
  machine.entry(join, now);
  const auto lost = [&](int64_t beats) {
    now += std::chrono::seconds(1);
    machine.take_actions();
    machine.beats({{"b", beats}}, now);
    for (const auto& action : machine.take_actions()) {
      if (action.entry.type == Entry::Type::kLost) {
        return action.entry.about;
      }
    }
    return std::string();
  };
  CHECK(lost(1).empty());
  CHECK(lost(1).empty());
  CHECK(lost(kDead) == "b");
}

// A node's part in a job of several, as its agent drives it.

// An address at which connections get no answer, as behind a firewall: Linux
// drops connections that no process accepts.
class SilentAddress {
 public:
  SilentAddress(const std::string& address, int port) {
    listener_ = FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(static_cast<uint16_t>(port));
    REQUIRE(inet_pton(AF_INET, address.c_str(), &place.sin_addr) == 1);
    const auto* generic = reinterpret_cast<const sockaddr*>(&place);
    REQUIRE(bind(listener_.get(), generic, sizeof place) == 0);
    REQUIRE(listen(listener_.get(), 0) == 0);
    pollfd last{};
    do {
      callers_.emplace_back(
          socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      connect(callers_.back().get(), generic, sizeof place);
      last = {callers_.back().get(), POLLOUT, 0};
    } while (poll(&last, 1, 200) == 1);
  }

 private:
  FileDescriptor listener_;
  std::vector<FileDescriptor> callers_;
};

TEST_CASE("^C ends a search for the job behind firewalls", "[rendezvous]") {
  const int port = free_port();
  std::string endpoint = "127.0.0.1:" + std::to_string(port);
  std::vector<SilentAddress> silent;
  for (int i = 2; i < 17; ++i) {
    const std::string address = "127.0.0." + std::to_string(i);
    silent.emplace_back(address, port);
    endpoint += "," + address + ":" + std::to_string(port);
  }
  LaunchedJob job(words(
      "--nnodes=2 --rdzv-backend=etcd --rdzv-endpoint " + endpoint + " true"));
  job.agent();
  const auto start = Clock::now();
  CHECK(job.wait_after(SIGINT) == 128 + SIGINT);
  // Two seconds for each of them.
  CHECK(Clock::now() - start < std::chrono::seconds(15));
}

TEST_CASE("a node whose token differs ends with 2", "[rendezvous]") {
  const std::string options =
      "--nnodes=2 --rdzv-endpoint=127.0.0.1:" + std::to_string(free_port()) +
      " --join-timeout=";
  LaunchedJob first(
      words(options + "60 --rdzv-conf=is_host=1 true"),
      {{{"DDP_TOKEN", "one"}}});
  LaunchedJob second(
      words(options + "12 --rdzv-conf=is_host=0 true"),
      {{{"DDP_TOKEN", "two"}}});
  CHECK(second.wait() == 2);
  CHECK_THAT(
      second.err(),
      Has("a node uses a different token (DDP_TOKEN, --token), --rdzv-id or "
          "version of ddprun: use the same on all"));
  CHECK(first.wait_after(SIGINT) == 128 + SIGINT);
}

TEST_CASE("a job waits while another one has the endpoint", "[rendezvous]") {
  const std::string options =
      "--nnodes=1:2 --last-call=0 --rdzv-endpoint=127.0.0.1:" +
      std::to_string(free_port()) + " --rdzv-id=";
  LaunchedJob first(words(options + "one WORKER wait"));
  first.wait_for_output("ready");
  LaunchedJob second(words(options + "two sh -c 'echo runs'"));
  second.wait_for_output("and another endpoint for another job");
  CHECK(count_of(second.out(), "runs") == 0);
  CHECK(first.wait_after(SIGINT) == 128 + SIGINT);
  CHECK(second.wait() == 0);
  CHECK(count_of(second.out(), "runs") == 1);
}

TEST_CASE(
    "a node without a place tells that the job has ended",
    "[rendezvous]") {
  const TemporaryFolder folder;
  const std::string end = folder / "end";
  const std::string options =
      "--nnodes=1:2 --rdzv-endpoint=127.0.0.1:" + std::to_string(free_port()) +
      " sh -c 'echo on; while [ ! -e " + end + " ]; do sleep 0.1; done'";
  LaunchedJob first(words(options));
  LaunchedJob second(words(options));
  first.wait_for_output("on");
  LaunchedJob third(words(options));
  third.wait_for_output("ddprun: waiting");
  write_text(end, "");
  CHECK(first.wait() == 0);
  CHECK(second.wait() == 0);
  CHECK(third.wait() == 0);
  CHECK_THAT(third.err(), Has("the job ended without this node"));
  CHECK(count_of(third.out(), "on") == 0);
}

TEST_CASE("who writes without end does not hold up an agent", "[rendezvous]") {
  Job job;
  NodeOptions& nodes = job.options.nodes;
  nodes.least = 2;
  nodes.most = 2;
  nodes.host = "127.0.0.1";
  nodes.port = 1;
  nodes.hosts_log = false;
  job.store_program = WORKER_PATH; // writes 100 MB, then ends
  Rendezvous rendezvous(job);
  const pid_t writer = rendezvous.helper();
  // The second time, the writer has room and continues.
  for (int i = 0; i < 2; ++i) {
    pollfd events{rendezvous.fd(), POLLIN, 0};
    REQUIRE(poll(&events, 1, 20000) == 1);
    rendezvous.handle_events(Clock::now());
    CHECK(waitpid(writer, nullptr, WNOHANG) == 0);
  }
  kill(writer, SIGKILL);
  waitpid(writer, nullptr, 0);
}

} // namespace ddp::test::rendezvous_test
