#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddp {

/// The data of a node that joins a job.
struct NodeInfo {
  std::string id; // random, from its agent, new at each start
  std::string host; // for messages, and for the order of nodes
  std::string address; // the numeric address for other nodes
  int ranks = 1; // local ranks
  /// --node-rank; -1 if any rank is acceptable.
  int wanted_rank = -1;
  bool hosts_log = false;
  // Equal on all nodes of a job:
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 0;
};

/// Replaces the number of beats of a node that is known to be dead.
constexpr int64_t kDead = -2;

/// The nodes of one epoch of a job, in the order of their ranks.
struct Plan {
  int epoch = 0; // 1 for the first
  /// Restarts after failures so far; a change of nodes does not count.
  int restarts = 0;
  int max_restarts = 0;
  std::vector<NodeInfo> nodes;

  int world_size() const;
  /// The place of a node; -1 if the node has none.
  int index_of(const std::string& id) const;
  /// The first rank of the node in that place.
  int first_rank(int index) const;
};

/// "n0, n1", or "none".
std::string hosts_of(const std::vector<NodeInfo>& nodes);

/// Sorts nodes. A node with a --node-rank gets this place if the job has enough
/// nodes. The others fill the remaining places, ordered by their place in
/// `last`, then by host name, then by the time of joining.
std::vector<NodeInfo> in_order(std::vector<NodeInfo> nodes, const Plan& last);

/// An entry of the job's log. All nodes read the entries in the same order.
struct Entry {
  enum class Type {
    kJoin, // the node joins
    kLeave, // the node leaves; its ranks are being stopped
    kLost, // the leader has not heard from a node for too long
    kPlan, // the leader's plan of the next epoch
    kReady, // a node has read the plan
    kStart, // all nodes are ready; the first gives the ranks' address
    kFailed, // a rank of a node failed
    kStopped, // all ranks of a node have ended
    kFinished, // all ranks of a node exited with 0
    kReRendezvous, // the leader ends the epoch so that nodes can join
    kEnd, // the job ends
    kQuiet, // no rank of a node makes progress
    kMoves, // a rank of such a node makes progress again
  };

  Type type = Type::kJoin;
  std::string from; // the writer's id
  int64_t sequence = 0; // among the writer's entries: 1, 2, ...
  int epoch = 0; // the epoch that the entry concerns
  NodeInfo node; // kJoin
  Plan plan; // kPlan; its nodes have only ids
  std::string about; // kLost: the lost node's id
  std::string address; // kStart
  int port = 0; // kStart
  int code = 0; // kFailed, kEnd, kQuiet: ddprun's exit code
  bool is_consequence = false; // kFailed: a consequence of another failure
  std::string text; // the reason, for messages
};

/// Convert an entry to and from JSON; parse_entry() returns none for other
/// text.
std::string entry_text(const Entry& entry);
std::optional<Entry> parse_entry(const std::string& text);

} // namespace ddp
