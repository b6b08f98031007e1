#include <launcher/rendezvous/log/node_state_machine.h>

#include <algorithm>
#include <utility>

#include <common/scheduler/launch_error.h>
#include <common/text.h>
#include <launcher/sockets.h>

namespace ddp {
namespace {

using Type = Entry::Type;
using Phase = Membership::Phase;
using Kind = NodeStateMachine::Action::Kind;

// A node that finds a time limit passed for this time was itself suspended.
constexpr std::chrono::seconds kSuspendedTime(1);

} // namespace

NodeStateMachine::NodeStateMachine(
    const NodeOptions& options,
    NodeInfo self,
    Time now)
    : options_(options),
      self_(std::move(self)),
      log_(options.has_service()),
      answered_(now),
      gathering_since_(now),
      last_join_(now) {
  self_.wanted_rank = options.rank;
  self_.min_nodes = options.least;
  self_.max_nodes = options.most;
  schedule(now);
}

// Actions of this node

NodeStateMachine::Action& NodeStateMachine::act(Action::Kind kind) {
  actions_.emplace_back();
  actions_.back().kind = kind;
  return actions_.back();
}

// Posts an entry, which the caller fills in.
Entry& NodeStateMachine::post(Type type) {
  Entry& entry = is_connected() ? act(Kind::kPost).entry : dropped_;
  unread_ += is_connected() ? 1 : 0;
  entry.type = type;
  entry.from = self_.id;
  entry.epoch = log_.plan.epoch;
  return entry;
}

void NodeStateMachine::exit(int code, const std::string& text) {
  if (state_ != State::kGone) {
    state_ = State::kGone;
    Action& action = act(Kind::kExit);
    action.code = code;
    action.text = text;
  }
}

void NodeStateMachine::stop_ranks(const std::string& text) {
  if (ranks_ == Ranks::kRunning) {
    ranks_ = Ranks::kStopping;
    act(Kind::kStop).text = text;
  }
}

std::vector<NodeStateMachine::Action> NodeStateMachine::take_actions() {
  return std::exchange(actions_, {});
}

// Events

void NodeStateMachine::connected(
    const std::string& address,
    bool serves,
    Time now) {
  access_ = Access::kTrusted;
  log_answered(now);
  gathering_since_ = now;
  self_.address = address;
  self_.hosts_log = serves;
  tick(now);
}

void NodeStateMachine::entry(const Entry& entry, Time now) {
  if (state_ == State::kGone) {
    return;
  }
  const Phase before = log_.phase;
  const bool had_job = !log_.plan.nodes.empty() && before != Phase::kEnded;
  const bool host_left = entry.type == Type::kLeave && log_.is_host(entry.from);
  log_answered(now);
  const bool is_over = before == Phase::kEnded && log_.has(self_.id);
  if (!is_over || entry.type == Type::kLeave) { // else of another job
    log_.apply(entry);
  }
  if (entry.from == self_.id) {
    --unread_;
  }
  if (had_job && log_.plan.nodes.empty() && log_.has(self_.id)) {
    cooldown_until_ = now + options_.node_timeout / 2;
  }
  if (entry.type == Type::kJoin) {
    has_host_ = has_host_ || entry.node.hosts_log;
    last_join_ = now;
    heard_[entry.from] = {-1, now};
    if (entry.from == self_.id && log_.has(self_.id) &&
        state_ == State::kJoined) {
      check_fit(now);
    }
  }
  if (log_.phase == Phase::kGathering && before != Phase::kGathering) {
    gathering_since_ = now;
  }
  if (entry.type == Type::kLost && entry.about == self_.id) {
    leave_with(kExitInfrastructure, entry.text, now);
  } else if (
      host_left && entry.from != self_.id && log_.phase != Phase::kEnded &&
      state_ != State::kLeaving) {
    state_ = State::kOrphaned;
    text_ = entry.text;
  }
  tick(now);
}

void NodeStateMachine::beats(
    const std::map<std::string, int64_t>& counts,
    Time now) {
  log_answered(now);
  for (auto& [id, heard] : heard_) {
    const auto found = counts.find(id);
    const int64_t count = found == counts.end() ? -1 : found->second;
    if (watched_.count(id) == 0) {
      heard = {-1, now};
    } else if (count == kDead) {
      heard.at = now - 2 * options_.node_timeout;
    } else if (count != heard.count) {
      heard = {count, now};
    }
  }
  if (is_connected() && state_ != State::kLeaving) {
    report_silence(now);
  }
  choose_watched(now);
  tick(now);
}

void NodeStateMachine::log_answered(Time now) {
  // If this node itself was suspended, no other node was silent.
  if (now - answered_ > options_.node_timeout / 2) {
    for (auto& [id, heard] : heard_) {
      heard.at = now;
    }
  }
  answered_ = now;
  answer_by_ = now + options_.node_timeout;
}

void NodeStateMachine::log_lost(const std::string& why, Time now) {
  lose_log(why, now);
  tick(now);
}

void NodeStateMachine::lose_log(const std::string& why, Time now) {
  if (state_ == State::kGone) {
    return;
  }
  const auto& nodes = log_.nodes;
  const auto host =
      std::find_if(nodes.begin(), nodes.end(), [](const NodeInfo& each) {
        return each.hosts_log;
      });
  const auto text = state_ == State::kOrphaned ? text_
      : host == nodes.end()
      ? why
      : why + "; node " + host->host + " served the rendezvous";
  const bool was_connected =
      std::exchange(access_, Access::kNone) != Access::kNone;
  unread_ = 0;
  stop_ranks(text);
  if (state_ == State::kLeaving || is_job_over()) {
    until_ = now;
    return;
  }
  const bool was_others = is_log_of_others();
  const bool has_joined =
      self_.hosts_log || (log_.has(self_.id) && !was_others);
  // A service that was never reached has rejected this node.
  if (has_joined || (options_.has_service() && !was_connected)) {
    leave_with(kExitInfrastructure, text, now);
  } else {
    gathering_since_ = was_connected && !was_others ? now : gathering_since_;
    begin_anew(text);
  }
}

void NodeStateMachine::store_opened(int port, Time now) {
  Entry& entry = post(Type::kStart);
  entry.epoch = opened_epoch_;
  entry.address = self_.address;
  entry.port = port;
  tick(now);
}

void NodeStateMachine::rank_failed(
    int code,
    bool is_consequence,
    const std::string& text,
    Time now) {
  if (ranks_ == Ranks::kRunning) {
    ranks_ = Ranks::kStopping;
  }
  Entry& entry = post(Type::kFailed);
  entry.epoch = started_epoch_;
  entry.code = code;
  entry.is_consequence = is_consequence;
  entry.text = text;
  tick(now);
}

void NodeStateMachine::ranks_quiet(bool are_quiet, const std::string& text) {
  if (ranks_ != Ranks::kRunning || unread_ > 0) {
    return; // its last entry counts once it is read
  }
  if (are_quiet && log_.awaits_quiet(self_.id)) {
    Entry& entry = post(Type::kQuiet);
    entry.code = kExitTimeout;
    entry.text = text;
  } else if (!are_quiet && log_.is_quiet(self_.id)) {
    post(Type::kMoves);
  }
}

void NodeStateMachine::ranks_ended(bool succeeded, Time now) {
  ranks_ = Ranks::kNone;
  if (succeeded && is_connected() && log_.phase == Phase::kRunning) {
    idle_epoch_ = started_epoch_;
    post(Type::kFinished);
  }
  tick(now);
}

void NodeStateMachine::leave(int code, const std::string& text, Time now) {
  if (state_ == State::kLeaving || state_ == State::kGone) {
    return;
  }
  const bool is_needed = self_.hosts_log && log_.nodes.size() > 1;
  post(Type::kLeave).text = text;
  leave_with(code, text, is_needed ? now + std::chrono::seconds(1) : now);
  tick(now);
}

void NodeStateMachine::leave_with(
    int code,
    const std::string& text,
    Time until) {
  state_ = State::kLeaving;
  code_ = code;
  text_ = text;
  until_ = until;
  stop_ranks(text);
}

void NodeStateMachine::end_job(int code, const std::string& text, Time now) {
  if (!is_connected() || !is_in_plan()) {
    leave(code, text, now);
    return;
  }
  post_end(code, text);
  tick(now);
}

void NodeStateMachine::post_end(int code, const std::string& text) {
  Entry& entry = post(Type::kEnd);
  entry.code = code;
  entry.text = text;
}

// Consequences

void NodeStateMachine::tick(Time now) {
  const bool is_overdue =
      is_connected() && options_.several() && now >= answer_by_;
  if (is_overdue && now >= answer_by_ + kSuspendedTime) {
    answer_by_ = now + options_.node_timeout / 2; // the log may be, too
  } else if (is_overdue) {
    lose_log(
        "the rendezvous did not answer for " +
            describe_time(options_.node_timeout) + " (--node-timeout)",
        now);
  }
  if (state_ != State::kGone) {
    follow(now);
    schedule(now);
  }
}

void NodeStateMachine::follow(Time now) {
  if (state_ == State::kLeaving) {
    // Others must read that this node leaves.
    if (ranks_ == Ranks::kNone && unread_ <= 0 && now >= until_) {
      exit(code_, text_);
    }
    return;
  }
  if (state_ == State::kProbation) {
    // Finds out whether the other job, which has all its nodes, still runs.
    if (log_.phase == Phase::kEnded) {
      begin_anew(text_);
    } else if (log_.plan.nodes.empty()) {
      state_ = State::kJoined; // it does not
    } else if (now >= until_ && !log_.must_end()) {
      leave(kExitUsage, text_, now);
    }
  } else if (is_job_over()) {
    end(now);
  } else if (state_ == State::kOrphaned) {
    stop_ranks(text_);
  } else if (is_connected()) {
    if (state_ == State::kSeeking) {
      join();
    }
    take_part();
    lead(now);
  } else if (now >= gathering_since_ + options_.join_timeout) {
    exit(
        options_.has_service() ? kExitInfrastructure : kExitTimeout,
        "after " + describe_time(options_.join_timeout) + ": " + awaited());
  }
}

// Sets the next deadline that no event announces. An overdue one waits for an
// event.
void NodeStateMachine::schedule(Time now) {
  next_.reset();
  const auto consider = [&](Time time) {
    if (time > now && (!next_ || time < *next_)) {
      next_ = time;
    }
  };
  if (is_connected() && options_.several()) {
    consider(answer_by_);
  }
  consider(until_);
  consider(gathering_since_ + options_.join_timeout);
  consider(last_join_ + options_.last_call);
}

// Whether this node's job is over, not another one whose log it found.
bool NodeStateMachine::is_job_over() const {
  return log_.phase == Phase::kEnded && (log_.has(self_.id) || self_.hosts_log);
}

bool NodeStateMachine::is_in_plan() const {
  return log_.plan.index_of(self_.id) >= 0 && log_.has(self_.id);
}

void NodeStateMachine::take_part() {
  const int epoch = log_.plan.epoch;
  const Phase phase = log_.phase;
  if (!is_in_plan()) {
    return;
  }
  const int index = log_.plan.index_of(self_.id);
  if (phase == Phase::kStarting && ready_epoch_ < epoch) {
    ready_epoch_ = epoch;
    post(Type::kReady);
  } else if (
      phase == Phase::kStarting && index == 0 && log_.is_confirmed() &&
      opened_epoch_ < epoch) {
    opened_epoch_ = epoch;
    act(Kind::kOpenStore);
  } else if (phase == Phase::kRunning && started_epoch_ < epoch) {
    started_epoch_ = epoch;
    ranks_ = Ranks::kRunning;
    act(Kind::kStart).index = index;
  } else if (phase == Phase::kStopping) {
    stop_ranks(log_.cause_text);
    if (ranks_ == Ranks::kStopping && log_.is_urgent) {
      ranks_ = Ranks::kKilled;
      act(Kind::kKill);
    }
    if (ranks_ == Ranks::kNone && idle_epoch_ < epoch) {
      idle_epoch_ = epoch;
      post(Type::kStopped);
    }
  }
}

std::string NodeStateMachine::endpoint() const {
  return describe_endpoint(options_.host, options_.port);
}

} // namespace ddp
