#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include <launcher/rendezvous/log/entry.h>

namespace ddp {

/// What the log says of a job: a function of its entries alone, so that all
/// nodes that read as far agree. An entry that does not fit (of a past epoch,
/// of a node that is none) changes nothing.
class Membership {
 public:
  enum class Phase {
    kGathering, // no epoch goes on; the leader waits for nodes
    kStarting, // there is a plan; not all of its nodes know it
    kRunning,
    kStopping, // the plan's nodes stop their ranks
    kEnded,
  };

  /// Why an epoch stopped, by what came first.
  enum class Cause { kNone, kFailure, kNodes, kEnd };

  struct Failure {
    std::string node; // id
    int code = 0;
    bool is_consequence = false;
    std::string text;
  };

  /// `outlives_jobs`: a service has the log, and who joins after the end begins
  /// another job.
  explicit Membership(bool outlives_jobs = false)
      : outlives_jobs_(outlives_jobs) {}

  void apply(const Entry& entry);

  /// Null if a node is not among `nodes`.
  const NodeInfo* find(const std::string& id) const;
  bool has(const std::string& id) const {
    return find(id) != nullptr;
  }
  /// Whether it serves this log.
  bool is_host(const std::string& id) const;
  /// Decides what is to be decided by one: the node that joined first.
  std::string leader() const {
    return nodes.empty() ? "" : nodes.front().id;
  }
  /// The nodes of the last plan, without those that left or were lost since.
  std::vector<NodeInfo> survivors() const;
  /// Whether all nodes of the last plan have read it.
  bool is_confirmed() const;
  /// Whether the epoch stops by a failure after which there is no restart.
  bool has_failed() const {
    return cause == Cause::kFailure && plan.restarts >= plan.max_restarts;
  }
  /// The nodes whose stopped ranks the others wait for.
  std::vector<NodeInfo> awaited() const;

  Phase phase = Phase::kGathering;
  /// In the order of joining; without those that left or were lost.
  std::vector<NodeInfo> nodes;
  /// The last plan; without nodes before the first.
  Plan plan;
  /// Where the ranks of the epoch meet, from kRunning on.
  std::string address;
  int port = 0;
  /// Why the epoch stops or stopped last, and in one line for people.
  Cause cause = Cause::kNone;
  std::string cause_text;
  /// Whether a node ended the job twice: no one has time to stop by then.
  bool is_urgent = false;
  /// The epoch's first failure that is no other's consequence.
  std::optional<Failure> failure;
  /// Nodes of the epoch all of whose ranks exited with 0.
  std::set<std::string> finished;
  /// Nodes that left of their own will.
  std::set<std::string> left;
  /// ddprun's exit code once the phase is kEnded.
  int exit_code = 0;

 private:
  Membership after_job() const;
  bool in_epoch(const Entry& entry) const;
  void join(const Entry& entry);
  void remove(const std::string& id, const std::string& why);
  void forget_job();
  void start_epoch(const Entry& entry);
  void add_failure(const Entry& entry);
  void stop(Cause why, const std::string& text);
  void end(const Entry& entry);
  void conclude_epoch();

  bool outlives_jobs_;
  std::set<std::string> ready_; // of the last plan's nodes
  std::set<std::string> enders_;
  std::set<std::string> idle_; // say that they have no rank any more
  std::set<std::string> lost_; // in this log
};

} // namespace ddp
