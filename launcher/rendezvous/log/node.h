#pragma once

#include <cstdint>
#include <string>

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

} // namespace ddp
