#pragma once

#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <launcher/rendezvous/log/node_state_machine.h>

constexpr std::chrono::milliseconds kBeat(1000);

struct SimulatedOptions : ddp::NodeOptions {
  int max_restarts = 0;
  bool loses_entries = false; // or has them late or twice
};

/// A job of several nodes without processes, sockets or clocks: Members, the
/// logs that they share, a network that can be cut, and ranks that take their
/// time to stop. All that happens follows from a seed.
class SimulatedNodes {
 public:
  using Time = ddp::NodeStateMachine::Time;
  using Duration = std::chrono::milliseconds;

  /// The host of a service that has the log, which is there from the start
  /// where logs outlive nodes (`settings`); for set_link().
  static constexpr int kServer = -1;

  struct Node {
    std::unique_ptr<ddp::NodeStateMachine> machine;
    std::string id;
    int exit_code = -1; // ddprun's; -1 while it lives, -2 where it crashed
    std::string exit_text;
    int log = -1; // connected to
    size_t read = 0; // of its entries
    bool has_connected = false;
    bool serves_next = false;
    std::deque<std::pair<Time, ddp::Entry>> outbox;
    int64_t written = 0; // the sequence of its last entry
    std::map<std::string, int64_t> sequences; // read, by writer
    Time next_beat;
    int ran_log = -1; // the plan of the running ranks
    int epoch = 0; // whose ranks run; 0 for none
    int index = 0; // its place in that plan
    std::optional<Time> stops_at; // the ranks are being stopped
    std::optional<Time> opens_at; // the ranks' store
    Time suspended_until;
    // Whose checkpoints rank 0 took over, which is here: its log; -1 before.
    int taken = -1;
  };

  SimulatedNodes(const SimulatedOptions& settings, unsigned seed);

  /// A new agent, which looks for a log at the endpoint, or serves one there.
  int add_node(bool serves = false, int wanted_rank = -1);
  /// The agent and all of its ranks are gone at once.
  void crash(int node);
  void leave(int node);
  void fail_rank(int node, bool is_consequence = false);
  void finish_ranks(int node);
  /// Its agent stands still for that long. Its ranks go on.
  void suspend(int node, Duration time);
  /// By Ctrl-C: with exit code 130.
  void end_job(int node);
  /// Cuts or mends the link between two nodes. A log's clients on the other
  /// side get no answer, which they are not told.
  void set_link(int a, int b, bool up);
  void mend_all();

  /// Lets time pass; false once nobody lives.
  bool run_for(Duration time);

  int count() const {
    return static_cast<int>(nodes_.size());
  }
  const Node& node(int index) const {
    return nodes_.at(index);
  }
  bool lives(int index) const {
    return node(index).exit_code == -1;
  }
  /// What went against a promise; empty so far. A line each.
  const std::string& faults() const {
    return faults_;
  }
  /// What happened, a line each.
  const std::string& history() const {
    return history_;
  }

 private:
  struct Log {
    int host = kServer;
    bool is_open = true;
    std::vector<ddp::Entry> entries; // some twice
    std::map<std::string, int64_t> beats;
    std::map<std::string, Time> heard;
    std::map<std::string, Time> returned; // after a long silence
  };
  Duration random_time(int least_ms, int most_ms);
  void step(int node);
  void connect(int node);
  void write(int node);
  void read(int node);
  void beat(int node);
  void resolve_ranks(int node);
  void act(int node);
  void append(int node, const ddp::Entry& entry);
  void check_posted(int node, const ddp::Entry& entry);
  void lose_log(int node, const std::string& why);
  bool reaches(int a, int b) const;
  void go(int node, int code, const std::string& text);
  bool may_save(int node) const;
  void save(int node);
  void check_plan(const Node& node);
  void check();
  void note(int node, const std::string& what);

  SimulatedOptions settings_;
  std::mt19937 random_;
  std::mt19937 saves_; // when ranks do
  Time now_;
  std::vector<Node> nodes_;
  std::vector<Log> logs_;
  int endpoint_; // who served there last
  std::pair<int, int> saved_{-1, 0}; // the checkpoints' log and epoch
  std::set<std::pair<int, int>> cut_;
  std::string faults_;
  std::string history_;
};
