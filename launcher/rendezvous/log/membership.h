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

  Phase phase() const {
    return phase_;
  }
  /// In the order of joining; without those that left or were lost.
  const std::vector<NodeInfo>& nodes() const {
    return nodes_;
  }
  bool has(const std::string& id) const {
    return find(id) != nullptr;
  }
  /// Null where it is not among them.
  const NodeInfo* find(const std::string& id) const;
  /// Whether it serves this log.
  bool is_host(const std::string& id) const;
  /// Whether all ranks of some node of this epoch exited with 0.
  bool has_finished_nodes() const {
    return !finished_.empty();
  }
  /// Whether a node left of its own will.
  bool has_left(const std::string& id) const {
    return left_.count(id) != 0;
  }
  /// Decides what is to be decided by one: the node that joined first.
  std::string leader() const {
    return nodes_.empty() ? "" : nodes_.front().id;
  }
  /// The last plan; without nodes before the first.
  const Plan& plan() const {
    return plan_;
  }
  /// The number of the next plan.
  int next_epoch() const {
    return plan_.epoch + 1;
  }
  /// The nodes of the last plan, without those that left or were lost since.
  std::vector<NodeInfo> survivors() const;
  /// Whether all nodes of the last plan have read it.
  bool is_confirmed() const;
  /// Where the ranks of the epoch meet, from kRunning on.
  const std::string& address() const {
    return address_;
  }
  int port() const {
    return port_;
  }
  /// Of the epoch that stops or stopped last.
  Cause cause() const {
    return cause_;
  }
  /// Whether a node ended the job twice: nobody has time to stop by then.
  bool is_urgent() const {
    return is_urgent_;
  }
  /// One line: which node left, or was lost.
  const std::string& cause_text() const {
    return cause_text_;
  }
  /// The epoch's first failure that is no other's consequence.
  const std::optional<Failure>& failure() const {
    return failure_;
  }
  /// Whether the log says that a node has no rank any more in this epoch.
  bool is_idle(const std::string& id) const {
    return idle_.count(id) != 0 || finished_.count(id) != 0;
  }
  /// The nodes whose stopped ranks the others wait for.
  std::vector<NodeInfo> awaited() const;
  /// ddprun's exit code once the phase is kEnded.
  int exit_code() const {
    return exit_code_;
  }

 private:
  Membership after_job() const;
  bool in_epoch(const Entry& entry) const;
  void join(const Entry& entry);
  void remove(const std::string& id, const std::string& why);
  void forget_job();
  void start_epoch(const Entry& entry);
  void add_failure(const Entry& entry);
  void stop(Cause cause, const std::string& text);
  void end(const Entry& entry);
  void conclude_epoch();

  bool outlives_jobs_;
  Phase phase_ = Phase::kGathering;
  std::vector<NodeInfo> nodes_;
  Plan plan_;
  std::set<std::string> ready_; // of the last plan's nodes
  std::set<std::string> left_; // of their own will
  std::string address_;
  int port_ = 0;
  Cause cause_ = Cause::kNone;
  std::string cause_text_;
  std::set<std::string> enders_;
  bool is_urgent_ = false;
  std::optional<Failure> failure_;
  std::set<std::string> idle_;
  std::set<std::string> finished_;
  std::set<std::string> lost_; // in this log
  int exit_code_ = 0;
};

} // namespace ddp
