#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddp {

/// What a node tells of itself when it joins a job.
struct NodeInfo {
  std::string id; // drawn by its agent at each start
  std::string host; // for people, and for the order of nodes
  std::string address; // numeric: where other nodes reach it
  int ranks = 1; // that it starts
  /// --node-rank; -1 for any place.
  int wanted_rank = -1;
  bool hosts_log = false;
  // The same on all nodes of a job:
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 0;
};

/// In place of the beats of a node that is known to be dead.
constexpr int64_t kDead = -2;

/// Who takes part in one epoch of a job: the nodes in the order of their ranks.
struct Plan {
  int epoch = 0; // 1 for the first
  /// Restarts after failures so far; a change of nodes is none.
  int restarts = 0;
  int max_restarts = 0;
  std::vector<NodeInfo> nodes;

  int world_size() const;
  /// The place of a node; -1 where it has none.
  int index_of(const std::string& id) const;
  /// The first rank of the node in that place.
  int first_rank(int index) const;
};

/// "n0, n1", or "none".
std::string hosts_of(const std::vector<NodeInfo>& nodes);

/// Puts nodes in order: those with a --node-rank at that place, as far as there
/// are so many nodes; the others in the places between, by their place in
/// `last`, then by the host's name, then as they joined.
std::vector<NodeInfo> in_order(std::vector<NodeInfo> nodes, const Plan& last);

/// What a node writes into the job's log, which all nodes read in one order.
struct Entry {
  enum class Type {
    kJoin, // it takes part
    kLeave, // it takes part no more; its ranks are being stopped
    kLost, // the leader has not heard of a node for too long
    kPlan, // the leader says who takes part in the next epoch
    kReady, // a node has read the plan
    kStart, // all are ready: the plan's first node says where its ranks meet
    kFailed, // a rank of a node failed
    kStopped, // a node has no rank any more
    kFinished, // all ranks of a node exited with 0
    kRegroup, // the leader ends the epoch so that nodes can join
    kEnd, // the job ends
  };

  Type type = Type::kJoin;
  std::string from; // the writer's id
  int64_t sequence = 0; // of the writer's entries: 1, 2, ...
  int epoch = 0; // of which it speaks
  NodeInfo node; // kJoin
  Plan plan; // kPlan; of its nodes the ids
  std::string about; // kLost: the lost node's id
  std::string address; // kStart
  int port = 0; // kStart
  int code = 0; // kFailed, kEnd: ddprun's exit code
  bool is_consequence = false; // kFailed: of another rank's failure
  std::string text; // why, for people
};

/// As JSON, and back; none if the text is not an entry.
std::string entry_text(const Entry& entry);
std::optional<Entry> parse_entry(const std::string& text);

} // namespace ddp
