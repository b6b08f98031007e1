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

/// What a node does in a job: told what happens, it answers what its agent has
/// to do. Knows no process, socket or clock.
///
///     state      what happens                                  becomes
///     kSeeking   the log can be read: it joins                 kJoined
///                nobody serves one within the join timeout     kGone
///     kJoined    it does not fit the job, or is to leave       kLeaving
///                it does not fit that of an etcd               kDoubting
///                the node that serves the log leaves           kOrphaned
///     kDoubting  that job's nodes are gone: it may begin one   kJoined
///                they are not, for some time                   kLeaving
///     any        the log is lost, or has it as lost            kLeaving
///                the job has ended                             kGoodbye
///     kGoodbye   others have read that, or do not              kGone
///     kLeaving   its ranks have ended, its entries were read   kGone
class NodeStateMachine {
 public:
  using Time = std::chrono::steady_clock::time_point;

  enum class State {
    kSeeking,
    kJoined,
    kDoubting,
    kOrphaned,
    kGoodbye,
    kLeaving,
    kGone,
  };

  struct Action {
    enum class Kind {
      kPost, // `entry`, into the log
      kOpenStore, // for the ranks of this epoch; answered by store_opened()
      kBeginAnew, // by a new NodeStateMachine: the log was one of a job that
                  // has ended
      kStart, // this node's ranks: in membership().plan, place `index`
      kStop, // them, for `text`
      kKill, // them, as they were to stop and somebody does not want to wait
      kExit, // with `code`; `text` says why, where that is no rank's failure
    };
    Kind kind = Kind::kPost;
    Entry entry;
    int index = 0;
    int code = 0;
    std::string text;
  };

  /// `self` has the node's id, host, ranks and restarts; `options` and the log
  /// say the rest.
  NodeStateMachine(const NodeOptions& options, NodeInfo self, Time now);

  /// The log can be read and written. `address` is this node's for others;
  /// `serves`: it has the log.
  void connected(const std::string& address, bool serves, Time now);
  /// It was lost, for good.
  void log_lost(const std::string& why, Time now);
  /// It cannot be reached yet, for the reason that people read.
  void log_unreachable(std::string why) {
    unreachable_ = std::move(why);
  }
  /// The log has entries that were not sealed as this job's are.
  void strangers_wrote() {
    has_strangers_ = true;
  }
  void entry(const Entry& entry, Time now);
  /// How often the log's nodes have made themselves heard; see watched().
  void beats(const std::map<std::string, int64_t>& counts, Time now);

  void store_opened(int port, Time now);
  /// A rank failed; the others of this node are being stopped.
  void rank_failed(
      int code,
      bool is_consequence,
      const std::string& text,
      Time now);
  /// No rank is left.
  void ranks_ended(bool succeeded, Time now);
  /// This node is to take part no more.
  void leave(int code, const std::string& text, Time now);
  /// The job is to end on all nodes, if this one takes part in it.
  void end_job(int code, const std::string& text, Time now);
  /// The time of deadline() has come.
  void tick(Time now);

  std::optional<Time> deadline() const {
    return next_;
  }
  std::vector<Action> take_actions();
  const Membership& membership() const {
    return log_;
  }
  const NodeInfo& self() const {
    return self_;
  }
  /// The nodes whose beats it wants to hear.
  std::vector<std::string> watched() const;
  /// One line: what it waits for.
  std::string awaited() const;

 private:
  struct Heard {
    int64_t count = -1;
    Time at;
  };
  /// Of this node.
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
  void post_end(int code, const std::string& text);
  void take_part();
  void end(Time now);
  void lead(Time now);
  void gather(Time now);
  void re_rendezvous(Time now);
  void post_plan(std::vector<NodeInfo> nodes);
  void report_silence(Time now);
  std::vector<NodeInfo> candidates() const;
  bool takes_others() const;
  void schedule(Time now);

  bool is_job_over() const;
  bool is_in_plan() const;
  std::string end_text() const;
  std::string endpoint() const; // for people

  NodeOptions options_;
  NodeInfo self_;
  Membership log_;
  bool connected_ = false; // the log can be read and written
  State state_ = State::kSeeking;
  std::string text_; // why, of kDoubting, kOrphaned and kLeaving
  int code_ = 0; // of kLeaving
  Time until_; // kDoubting, kGoodbye and kLeaving last at most, or at least
  Ranks ranks_ = Ranks::kNone;
  // The last epochs for which this node did so.
  int ready_epoch_ = 0;
  int opened_epoch_ = 0;
  int started_epoch_ = 0;
  int idle_epoch_ = 0; // it said that it has no ranks
  int regrouped_epoch_ = 0;
  std::set<std::string> reported_; // lost
  int unread_ = 0; // of what it posted
  Time answered_; // the log's last sign of life
  Time gathering_since_;
  Time last_join_;
  std::map<std::string, Heard> heard_;
  std::string unreachable_;
  bool has_strangers_ = false;
  Time calm_until_; // a job that nobody is left of stops its ranks meanwhile
  std::optional<Time> next_;
  std::vector<Action> actions_;
  Entry dropped_; // while there is no log
};

} // namespace ddp
