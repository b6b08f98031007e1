#pragma once

#include <cstdint>
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

} // namespace ddp
