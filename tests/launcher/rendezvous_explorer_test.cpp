// Every order of a few events in a running job of three nodes: the writes,
// reads and actions of each node, and faults.

#include <deque>
#include <unordered_set>

#include <tests/launcher/simulated_job.h>

namespace ddp::test::rendezvous_explorer_test {

using std::chrono::seconds;
using Kind = NodeStateMachine::Action::Kind;

constexpr int kNodes = 3;
constexpr int kMaxSilence = 15; // seconds in which a node acts, or none will

enum class Event {
  kWrite, // what it posted first reaches the log
  kRead, // the log's next entry
  kOpenStore, // for the ranks
  kStopped, // its ranks have ended
  kFail, // a rank
  kCrash,
  kLeave,
  kFinish, // all its ranks
  kTime, // passes until a node acts; not an event of a node
};

struct Node {
  explicit Node(NodeStateMachine its_machine) : machine(its_machine) {}

  NodeStateMachine machine;
  std::deque<Entry> outbox;
  size_t read = 0;
  int64_t beats = 0;
  int epoch = 0; // of its ranks
  bool is_alive = true;
  bool is_connected = true;
  bool is_stopping = false;
  bool is_opening = false;
  size_t past = 0; // a hash of all its events
};

/// Copies share the nodes that they do not change.
struct Job {
  SimulatedOptions settings;
  NodeStateMachine::Time now{std::chrono::hours(1)};
  std::array<std::shared_ptr<Node>, kNodes> nodes;
  std::vector<std::shared_ptr<const Entry>> log;
  size_t log_hash = 0;
  std::string fault;

  explicit Job(const SimulatedOptions& its_settings) : settings(its_settings) {
    for (int i = 0; i < kNodes; ++i) {
      NodeInfo self;
      self.id = "id" + std::to_string(i);
      self.host = "n" + std::to_string(i);
      self.max_restarts = settings.max_restarts;
      nodes[i] = std::make_shared<Node>(NodeStateMachine(settings, self, now));
      const bool serves = i == 0 && !settings.has_service();
      nodes[i]->machine.connected(self.host, serves, now);
      act(i);
    }
  }

  static size_t combined(size_t hash, size_t value) {
    return (hash ^ (value + 0x9e3779b97f4a7c15 + (hash << 6) + (hash >> 2))) *
        0x100000001b3;
  }

  /// Equal if each node had the same events in the same order.
  size_t key() const {
    size_t hash = combined(log_hash, now.time_since_epoch() / seconds(1));
    for (const auto& node : nodes) {
      hash = combined(hash, node->past);
      hash = combined(hash, node->is_alive + 2 * node->outbox.size());
    }
    return hash;
  }

  /// A node to change, which only this job has.
  Node& own(int index) {
    auto& node = nodes[index];
    if (node.use_count() > 1) {
      node = std::make_shared<Node>(*node);
    }
    return *node;
  }

  void die(int index) {
    Node& node = own(index);
    node.is_alive = false;
    node.epoch = 0;
    node.outbox.clear();
    if (index == 0 && !settings.has_service()) {
      for (int i = 1; i < kNodes; ++i) {
        if (nodes[i]->is_alive) {
          Node& other = own(i);
          other.is_connected = false;
          other.outbox.clear();
          tell(i, 99, [&] { other.machine.log_lost("closed", now); });
        }
      }
    }
  }

  void act(int index) {
    Node& node = own(index);
    for (const auto& action : node.machine.take_actions()) {
      switch (action.kind) {
        case Kind::kPost:
          node.outbox.push_back(action.entry);
          break;
        case Kind::kOpenStore:
          node.is_opening = true;
          break;
        case Kind::kStart:
          fault += node.epoch ? "ranks start beside others; " : "";
          node.epoch = node.machine.membership().plan.epoch;
          break;
        case Kind::kStop:
        case Kind::kKill:
          node.is_stopping = true;
          break;
        case Kind::kBeginAnew:
        case Kind::kExit:
          fault += node.epoch ? "a node exits while ranks run; " : "";
          die(index);
          return;
      }
    }
  }

  template <typename Function>
  void tell(int index, size_t what, Function function) {
    Node& node = own(index);
    node.past = combined(
        combined(node.past, what), now.time_since_epoch() / seconds(1));
    function();
    act(index);
  }

  bool can(Event event, int index) const {
    const Node& node = *nodes[index];
    const bool runs = node.epoch && !node.is_stopping;
    switch (event) {
      case Event::kWrite:
        return node.is_alive && node.is_connected && !node.outbox.empty();
      case Event::kRead:
        return node.is_alive && node.is_connected && node.read < log.size();
      case Event::kOpenStore:
        return node.is_alive && node.is_opening;
      case Event::kStopped:
        return node.is_alive && node.epoch && node.is_stopping;
      case Event::kFail:
      case Event::kFinish:
        return node.is_alive && runs;
      default:
        return node.is_alive;
    }
  }

  void happen(Event event, int index) {
    Node& node = own(index);
    auto& machine = node.machine;
    const auto what = static_cast<size_t>(event);
    switch (event) {
      case Event::kWrite:
        log.push_back(std::make_shared<Entry>(node.outbox.front()));
        log_hash = combined(
            log_hash, std::hash<std::string>()(entry_text(*log.back())));
        node.outbox.pop_front();
        break;
      case Event::kRead:
        tell(index, what, [&] { machine.entry(*log[node.read++], now); });
        break;
      case Event::kOpenStore:
        node.is_opening = false;
        tell(index, what, [&] { machine.store_opened(1, now); });
        break;
      case Event::kStopped:
      case Event::kFinish:
        node.epoch = 0;
        node.is_stopping = false;
        tell(index, what, [&] {
          machine.ranks_ended(event == Event::kFinish, now);
        });
        break;
      case Event::kFail:
        node.is_stopping = true;
        tell(index, what, [&] { machine.rank_failed(3, false, "x", now); });
        break;
      case Event::kCrash:
        die(index);
        break;
      case Event::kLeave:
        tell(index, what, [&] { machine.leave(143, "left", now); });
        break;
      case Event::kTime:
        pass_time();
        break;
    }
    check();
  }

  /// Passes seconds; living nodes send beats.
  void pass_time() {
    const auto posted = [&] {
      size_t count = 0;
      for (const auto& node : nodes) {
        count += node->outbox.size() + node->is_stopping + !node->is_alive;
      }
      return count;
    };
    const auto before = posted();
    for (int i = 0; i < kMaxSilence && posted() == before; ++i) {
      now += seconds(1);
      std::map<std::string, int64_t> beats;
      for (int n = 0; n < kNodes; ++n) {
        Node& node = own(n);
        node.beats += node.is_alive ? 1 : 0;
        beats[node.machine.self().id] = node.beats;
      }
      for (int n = 0; n < kNodes; ++n) {
        auto& node = *nodes[n];
        if (node.is_alive) {
          tell(n, 98, [&] {
            node.is_connected ? node.machine.beats(beats, now)
                              : node.machine.tick(now);
          });
        }
      }
    }
  }

  /// At most one plan has all of its nodes running, and the ranks of a plan
  /// start after the ranks of the previous one have ended on its nodes.
  void check() {
    std::set<std::pair<int, std::string>> whole;
    for (const auto& node : nodes) {
      const Plan& plan = node->machine.membership().plan;
      if (node->epoch == 0 || node->epoch != plan.epoch || plan.nodes.empty()) {
        continue;
      }
      bool all = true;
      for (const NodeInfo& each : plan.nodes) {
        const int epoch = nodes[each.id[2] - '0']->epoch;
        all = all && epoch == plan.epoch;
        fault += epoch > 0 && epoch < plan.epoch ? "an old rank runs; " : "";
      }
      if (all) {
        whole.insert({node->epoch, plan.nodes.front().id});
      }
    }
    fault += whole.size() > 1 ? "two parts of the job run; " : "";
  }

  /// Runs one round of pending events; returns whether there were any. Ranks
  /// need time to stop.
  bool settle_once() {
    for (const auto event :
         {Event::kWrite, Event::kRead, Event::kOpenStore, Event::kStopped}) {
      bool happened = false;
      for (int i = 0; i < kNodes; ++i) {
        while (can(event, i) && !(happened && event == Event::kStopped)) {
          happen(event, i);
          happened = true;
        }
      }
      if (happened) {
        return true;
      }
    }
    return false;
  }

  int living() const {
    return std::count_if(nodes.begin(), nodes.end(), [](const auto& node) {
      return node->is_alive;
    });
  }
};

struct Explorer {
  Explorer(int its_depth, bool with_finishes)
      : depth(its_depth), finishes(with_finishes) {}

  int depth; // the number of events
  bool finishes; // whether ranks may finish
  std::unordered_set<size_t> seen;
  size_t ends = 0;

  void explore(const Job& job, int events, int faults_left) {
    if (!seen.insert(Job::combined(job.key(), events * 16 + faults_left))
             .second) {
      return;
    }
    if (events == depth) {
      end(job);
      return;
    }
    for (int i = 0; i <= static_cast<int>(Event::kTime); ++i) {
      const auto event = static_cast<Event>(i);
      const bool is_fault = event == Event::kFail || event == Event::kCrash ||
          event == Event::kLeave || event == Event::kFinish;
      if ((is_fault && faults_left == 0) ||
          (event == Event::kFinish && !finishes)) {
        continue;
      }
      for (int node = 0; node < (event == Event::kTime ? 1 : kNodes); ++node) {
        if (event == Event::kTime || job.can(event, node)) {
          Job next = job;
          next.happen(event, node);
          if (!next.fault.empty()) {
            FAIL(next.fault);
          }
          explore(next, events + 1, faults_left - (is_fault ? 1 : 0));
        }
      }
    }
  }

  /// After any events, the job runs on the living nodes, waits for enough of
  /// them, or ends on all.
  void end(Job job) {
    ++ends;
    for (int idle = 0; idle < 4;) {
      if (!seen.insert(Job::combined(job.key(), 15 + idle)).second) {
        return; // an earlier end also led there
      }
      if (job.settle_once()) {
        idle = 0;
      } else {
        ++idle;
        job.pass_time();
      }
    }
    REQUIRE(job.fault == "");
    int running = 0;
    bool has_finished = false;
    for (const auto& node : job.nodes) {
      running += node->is_alive && node->epoch != 0;
      has_finished |= !node->machine.membership().finished.empty();
    }
    CAPTURE(running, job.living(), has_finished);
    if (job.living() >= job.settings.least && !has_finished) {
      REQUIRE(running == job.living());
    }
  }
};

TEST_CASE("Every order of some events keeps a job whole", "[explorer]") {
  for (const bool has_service : {false, true}) {
    for (const bool finishes : {false, true}) {
      auto with = settings(finishes ? 3 : 2, 3, 2);
      with.etcd.resize(has_service ? 1 : 0);
      Job job(with);
      while (job.nodes[0]->epoch == 0 || job.settle_once()) {
        job.settle_once() ? void() : job.pass_time();
      }
      for (const auto& node : job.nodes) {
        REQUIRE(node->epoch == 1);
      }
      Explorer explorer(variable("DDP_TEST_EVENTS", 5), finishes);
      explorer.explore(job, 0, variable("DDP_TEST_FAULTS", 2));
      INFO(explorer.seen.size() << " states, " << explorer.ends << " ends");
      REQUIRE(explorer.ends > 1000);
    }
  }
}

} // namespace ddp::test::rendezvous_explorer_test
