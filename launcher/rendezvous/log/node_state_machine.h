#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <launcher/rendezvous/log/membership.h>
#include <launcher/rendezvous/node_options.h>

namespace ddp {

/// Makes the decisions of a node in a job: receives events, and returns actions
/// for the node's agent. Uses no process, socket or clock.
///
///     state      what happens                                  becomes
///     kSeeking   the log can be read: the node joins           kJoined
///                no node serves the log in the join timeout    kGone
///     kJoined    the node does not fit the job, or must leave  kLeaving
///                the node does not fit an etcd's job           kProbation
///                the node that serves the log leaves           kOrphaned
///     kProbation that job's nodes have ended: begins another   kJoined
///                that job has ended: looks for the next one    kGone
///                those nodes still run after some time         kLeaving
///     any        the log is lost, or lists the node as lost    kLeaving
///                the job has ended                             kShutdown
///     kShutdown  others have read the end, or time is up       kGone
///     kLeaving   its ranks have ended, its entries are read    kGone
///
///     access     what happens                                  becomes
///     kNone      the log can be read and written               kTrusted
///     kTrusted   the log has entries with a different seal     kUntrusted
///     any        the log is lost                               kNone
class NodeStateMachine {
 public:
  using Time = std::chrono::steady_clock::time_point;

  enum class State {
    kSeeking,
    kJoined,
    kProbation,
    kOrphaned,
    kShutdown,
    kLeaving,
    kGone,
  };

  struct Action {
    enum class Kind {
      kPost, // `entry`, into the log
      kOpenStore, // for the ranks of this epoch; answer by store_opened()
      kBeginAnew, // with a new NodeStateMachine since gathering_since(): the
                  // log belongs to a job that has ended; `text` is the reason
      kStart, // this node's ranks: place `index` of membership().plan
      kStop, // the ranks; `text` is the reason
      kKill, // the stopping ranks, since a user does not want to wait
      kExit, // with `code`; `text` is the reason if no rank failed
    };
    Kind kind = Kind::kPost;
    Entry entry;
    int index = 0;
    int code = 0;
    std::string text;
  };

  /// `self` has the node's id, host, ranks and restarts; its other fields
  /// follow from `options` and the log.
  NodeStateMachine(const NodeOptions& options, NodeInfo self, Time now);

  /// The log can be read and written. `address` is the address at which others
  /// reach this node; `serves` means that this node serves the log.
  void connected(const std::string& address, bool serves, Time now);
  /// The connection to the log is permanently lost.
  void log_lost(const std::string& why, Time now);
  /// The log cannot be reached yet; `why` is the reason, for messages.
  void log_unreachable(std::string why) {
    unreachable_ = std::move(why);
  }
  /// The log has entries that are not sealed with this job's key.
  void untrusted_entry_read() {
    access_ = Access::kUntrusted;
  }
  void entry(const Entry& entry, Time now);
  /// The number of beats of each node of watched().
  void beats(const std::map<std::string, int64_t>& counts, Time now);

  void store_opened(int port, Time now);
  /// A rank failed; the other ranks of this node are being stopped.
  void rank_failed(
      int code,
      bool is_consequence,
      const std::string& text,
      Time now);
  /// Whether no rank of this node makes progress, and the reason to end the job
  /// if this is so on all nodes. Call this regularly: the entries depend on
  /// those of other nodes.
  void ranks_quiet(bool are_quiet, const std::string& text);
  /// All ranks of this node have ended.
  void ranks_ended(bool succeeded, Time now);
  /// This node must leave the job.
  void leave(int code, const std::string& text, Time now);
  /// The job must end on all nodes if this node belongs to it.
  void end_job(int code, const std::string& text, Time now);
  /// The time of deadline() has been reached.
  void tick(Time now);

  std::optional<Time> deadline() const {
    return next_;
  }
  std::vector<Action> take_actions();
  /// The start of the join timeout.
  Time gathering_since() const {
    return gathering_since_;
  }
  const Membership& membership() const {
    return log_;
  }
  const NodeInfo& self() const {
    return self_;
  }
  /// The nodes whose beats are needed.
  const std::set<std::string>& watched() const {
    return watched_;
  }
  /// Whether the node has reached the rendezvous.
  bool is_connected() const {
    return access_ != Access::kNone;
  }
  /// One line about the event for which the node waits.
  std::string awaited() const;

 private:
  struct Heard {
    int64_t count = -1;
    Time at;
  };
  /// This node's access to the log.
  enum class Access { kNone, kTrusted, kUntrusted };
  /// The state of this node's ranks.
  enum class Ranks { kNone, kRunning, kStopping, kKilled };

  Action& act(Action::Kind kind);
  Entry& post(Entry::Type type);
  void leave_with(int code, const std::string& text, Time until);
  void exit(int code, const std::string& text);
  void stop_ranks(const std::string& text);

  void log_answered(Time now);
  void lose_log(const std::string& why, Time now);
  void follow(Time now);
  void join();
  std::string difference_to(const NodeInfo& other) const;
  void check_fit(Time now);
  void begin_anew(const std::string& text);
  void post_end(int code, const std::string& text);
  void take_part();
  void end(Time now);
  void lead(Time now);
  void gather(Time now);
  void re_rendezvous(Time now);
  void post_plan(std::vector<NodeInfo> nodes);
  bool is_silent(const std::string& id, Time now) const;
  void report_silence(Time now);
  void choose_watched(Time now);
  std::vector<NodeInfo> candidates() const;
  bool takes_others() const;
  void schedule(Time now);

  bool is_log_of_others() const;
  bool is_job_over() const;
  bool is_in_plan() const;
  std::string end_text() const;
  std::string endpoint() const; // for messages

  NodeOptions options_;
  NodeInfo self_;
  Membership log_;
  Access access_ = Access::kNone;
  State state_ = State::kSeeking;
  std::string text_; // the reason in kProbation, kOrphaned and kLeaving
  int code_ = 0; // in kLeaving
  Time until_; // limit of kProbation, kShutdown and kLeaving
  Ranks ranks_ = Ranks::kNone;
  // The last epoch for which this node did each of these:
  int ready_epoch_ = 0;
  int opened_epoch_ = 0;
  int started_epoch_ = 0;
  int idle_epoch_ = 0; // this node reported that its ranks have ended
  int re_rendezvous_epoch_ = 0;
  std::set<std::string> reported_; // nodes reported as lost
  int unread_ = 0; // number of this node's entries not yet read
  bool has_host_ = false; // a node that serves the log has joined
  Time answered_; // the time of the log's last answer
  Time answer_by_; // the time of the next one, or the log is lost
  Time gathering_since_;
  Time last_join_;
  std::map<std::string, Heard> heard_;
  std::set<std::string> watched_;
  std::string unreachable_;
  Time cooldown_until_; // until then, an abandoned job stops its ranks
  std::optional<Time> next_;
  std::vector<Action> actions_;
  Entry dropped_; // an entry that is discarded without a log
};

} // namespace ddp
