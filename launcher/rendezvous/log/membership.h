#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include <launcher/rendezvous/log/entry.h>

namespace ddp {

/// The state of a job according to its log. The state depends only on the
/// entries, so all nodes that have read the same entries agree. An entry of a
/// past epoch, or of an unknown node, changes nothing.
class Membership {
 public:
  enum class Phase {
    kGathering, // no epoch runs; the leader waits for nodes
    kStarting, // some nodes of the plan have not read it yet
    kRunning,
    kStopping, // the plan's nodes stop their ranks
    kEnded,
  };

  /// The first reason why an epoch stopped.
  enum class Cause { kNone, kFailure, kNodes, kEnd };

  struct Failure {
    std::string node; // id
    int code = 0;
    bool is_consequence = false;
    std::string text;
  };

  /// `outlives_jobs`: a service keeps the log, and a node that joins after the
  /// end of a job begins another job. Without a service, the log ends with the
  /// job, and a node that joins once the job must end does not belong to it.
  explicit Membership(bool outlives_jobs = false)
      : outlives_jobs_(outlives_jobs) {}

  void apply(const Entry& entry);

  /// The node with this id; null if it is not among `nodes`.
  const NodeInfo* find(const std::string& id) const;
  bool has(const std::string& id) const {
    return find(id) != nullptr;
  }
  /// Whether this node serves the log.
  bool is_host(const std::string& id) const;
  /// The node that makes decisions for the job: the node that joined first.
  std::string leader() const {
    return nodes.empty() ? "" : nodes.front().id;
  }
  /// The nodes of the last plan that have neither left nor been lost.
  std::vector<NodeInfo> survivors() const;
  /// Whether all nodes of the last plan have read it.
  bool is_confirmed() const {
    return ready_.size() == plan.nodes.size();
  }
  /// Whether the epoch stops because of a failure and no restart is left.
  bool has_failed() const {
    return cause == Cause::kFailure && plan.restarts >= plan.max_restarts;
  }
  /// Whether the job ends once its ranks have stopped: a user ended it, or it
  /// accepts no node instead of a lost one.
  bool must_end() const;
  /// The nodes whose ranks have yet to stop.
  std::vector<NodeInfo> awaited() const;
  /// Whether the log says that this node's ranks make no progress.
  bool is_quiet(const std::string& id) const {
    return quiet_.count(id) != 0;
  }
  /// Whether this node, if its ranks make no progress, must write so: each node
  /// does, and again once all nodes have.
  bool awaits_quiet(const std::string& id) const {
    return (are_all_in(quiet_) ? still_quiet_ : quiet_).count(id) == 0;
  }

  Phase phase = Phase::kGathering;
  /// The nodes in the order of joining, without those that left or were lost.
  std::vector<NodeInfo> nodes;
  /// The last plan; has no nodes before the first plan.
  Plan plan;
  /// The job's first epoch; a log in etcd continues the count from job to job.
  int first_epoch = 1;
  /// The address of the epoch's store, from kRunning on.
  std::string address;
  int port = 0;
  /// The reason why the current or last epoch stops; `cause_text` is the
  /// message, one line.
  Cause cause = Cause::kNone;
  std::string cause_text;
  /// Whether a node requested the job's end twice; ranks then get no time to
  /// stop.
  bool is_urgent = false;
  /// The epoch's first failure that is not a consequence of another failure.
  std::optional<Failure> failure;
  /// Whether that failure is that no rank of any node makes progress.
  bool hangs = false;
  /// Nodes of the epoch whose ranks all exited with 0.
  std::set<std::string> finished;
  /// Nodes that left voluntarily.
  std::set<std::string> left;
  /// The exit code of ddprun, if the phase is kEnded.
  int exit_code = 0;

 private:
  Membership after_job() const;
  bool has_epoch() const {
    return phase != Phase::kGathering && phase != Phase::kEnded;
  }
  bool in_epoch(const Entry& entry) const;
  void go_on(const Entry& entry);
  void join(const Entry& entry);
  void remove(const std::string& id, const std::string& why);
  void start_epoch(const Entry& entry);
  void add_failure(const Entry& entry);
  void add_quiet(const Entry& entry);
  bool are_all_in(const std::set<std::string>& ids) const;
  void stop(Cause why, const std::string& text);
  void end(const Entry& entry);
  void conclude_epoch();

  bool outlives_jobs_;
  std::set<std::string> ready_; // nodes that have read the last plan
  std::set<std::string> enders_;
  std::set<std::string> busy_; // nodes whose ranks have yet to end
  std::set<std::string> quiet_; // nodes whose ranks make no progress
  std::set<std::string> still_quiet_; // also since all were
  std::set<std::string> lost_; // nodes lost in this log
};

} // namespace ddp
