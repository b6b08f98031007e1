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
  bool loses_entries = false; // or writes entries late or twice
};

/// A job of several nodes without processes, sockets or clocks: state machines,
/// the logs that they share, a network that can be cut, and ranks that need
/// time to stop. A seed determines all events.
class SimulatedNodes {
 public:
  using Time = ddp::NodeStateMachine::Time;
  using Duration = std::chrono::milliseconds;

  /// The host of a service with the log, which exists from the start if logs
  /// outlive nodes (`settings`); for set_link().
  static constexpr int kServer = -1;

  struct Node {
    std::unique_ptr<ddp::NodeStateMachine> machine;
    std::string id;
    int exit_code = -1; // ddprun's; -1 while alive, -2 after a crash
    std::string exit_text;
    int log = -1; // the log to which the node is connected
    size_t read = 0; // number of the log's entries read
    bool has_connected = false;
    bool serves_next = false;
    std::deque<std::pair<Time, ddp::Entry>> outbox;
    int64_t written = 0; // the sequence of the node's last entry
    std::map<std::string, int64_t> sequences; // read, by writer
    Time next_beat;
    int ran_log = -1; // the log with the plan of the running ranks
    int epoch = 0; // the epoch whose ranks run; 0 for none
    int index = 0; // the node's place in that plan
    std::optional<Time> stops_at; // set while the ranks are being stopped
    std::optional<Time> opens_at; // when the ranks' store opens
    Time suspended_until;
    // The log of the job whose checkpoints rank 0, on this node, took over; -1
    // before that.
    int taken = -1;
  };

  SimulatedNodes(const SimulatedOptions& settings, unsigned seed);

  /// Adds a new agent, which looks for a log at the endpoint, or serves one
  /// there.
  int add_node(bool serves = false, int wanted_rank = -1);
  /// Ends the agent and all its ranks immediately.
  void crash(int node);
  void leave(int node);
  void fail_rank(int node, bool is_consequence = false);
  void finish_ranks(int node);
  /// Suspends the node's agent for this time. The node's ranks continue.
  void suspend(int node, Duration time);
  /// Ends the job as by Ctrl-C, with exit code 130.
  void end_job(int node);
  /// Cuts or restores the link between two nodes. Over a cut link, a log's
  /// clients get no answer and no error.
  void set_link(int a, int b, bool up);
  void mend_all();

  /// Advances the time; returns false once no node is alive.
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
  /// The violated guarantees, one per line; empty if none.
  const std::string& faults() const {
    return faults_;
  }
  /// The events, one per line.
  const std::string& history() const {
    return history_;
  }

 private:
  struct Log {
    int host = kServer;
    bool is_open = true;
    std::vector<ddp::Entry> entries; // may contain an entry twice
    std::map<std::string, int64_t> beats;
    std::map<std::string, Time> heard;
    std::map<std::string, Time> returned; // when a long silence ended
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
  std::mt19937 saves_; // determines when ranks save
  Time now_;
  std::vector<Node> nodes_;
  std::vector<Log> logs_;
  int endpoint_; // the last node that served the endpoint
  std::pair<int, int> saved_{-1, 0}; // the checkpoints' log and epoch
  std::set<std::pair<int, int>> cut_;
  std::string faults_;
  std::string history_;
};
