// What a node does where the log's host is lost.
#include <launcher/rendezvous/log/member.h>

#include <string>
#include <utility>

#include <common/scheduler/launch_error.h>
#include <launcher/cli/network_values.h>

namespace ddp {
namespace {

using Phase = Membership::Phase;
using Kind = Member::Action::Kind;

// How long the nodes look for the log at one node before the next one serves
// it: more than what they notice the loss apart.
constexpr std::chrono::seconds kMoveTime(5);
// How long others can read in a log that its host leaves.
constexpr std::chrono::seconds kReadTime(2);

} // namespace

void Member::lose_log(const std::string& why, Time now) {
  if (over_) {
    return;
  }
  connected_ = false;
  unread_ = 0;
  stop_ranks(why);
  const bool can_move = settings_.log_moves && !self_.hosts_log &&
      log_.phase() != Phase::kEnded && !log_.plan().nodes.empty() &&
      !is_new_log_;
  if (leaving_ || is_job_over()) {
    return;
  }
  if (can_move) {
    move_log(why, now);
  } else if (settings_.log_moves && is_stranger()) {
    begin_anew();
  } else {
    leaving_ = {kExitInfrastructure, why, now};
  }
}

// Whether this node has not joined the log that it found.
bool Member::is_stranger() const {
  return !self_.hosts_log && !is_new_log_ && !log_.has(self_.id);
}

// Looks for a job as if this node had just been started. By another id: the
// same log may be found again, which knows this one, or has it for lost.
void Member::begin_anew() {
  // Of letters and digits, or others refuse it.
  self_.id = first_id_ + "n" + std::to_string(++begun_anew_);
  forget_log(Membership());
  act(Kind::kConnect);
}

// The log's host is gone: the next one in the plan's order serves a new log, or
// after some time the one after it. A node that loses the new one as well,
// before its first plan, gives up.
void Member::move_log(const std::string& why, Time now) {
  std::vector<NodeInfo> hosts;
  move_ = Move();
  move_->why = why;
  move_->is_stranger = is_stranger();
  move_->deadline = now;
  for (const NodeInfo& each : log_.survivors()) {
    if (log_.is_host(each.id) || each.standby_port == 0) {
      continue;
    }
    if (each.id == self_.id) {
      move_->may_serve = true;
      break; // those before it are looked for until it serves one itself
    }
    hosts.push_back(each);
    move_->deadline += kMoveTime;
  }
  expected_.clear();
  for (const NodeInfo& each : log_.survivors()) {
    if (!log_.is_host(each.id)) {
      expected_.insert(each.id);
    }
  }
  forget_log(log_.in_new_log());
  if (!hosts.empty()) {
    act(Kind::kConnect).nodes = std::move(hosts);
  }
}

// The job went on elsewhere when the endpoint's host was lost, and this log was
// begun beside it by nodes that do not know.
void Member::note_moved(const Entry& moved, Time now) {
  const bool is_elsewhere = settings_.log_moves && new_endpoint_.empty() &&
      moved.from != self_.id && log_.cause() != Membership::Cause::kEnd &&
      log_.phase() != Phase::kEnded;
  if (!difference_to(moved.node).empty() || !is_elsewhere || other_log_ ||
      leaving_ || over_) {
    return;
  }
  other_log_ = {NodeInfo(), self_.hosts_log ? now + kReadTime : now};
  other_log_->host.id = moved.from;
  other_log_->host.address = moved.address;
  other_log_->host.standby_port = moved.port;
  settings_.endpoint = describe_endpoint(moved.address, moved.port);
  stop_ranks("the job goes on at " + settings_.endpoint);
}

void Member::change_log(Time now) {
  self_.hosts_log = false;
  forget_log(Membership());
  move_ = Move();
  move_->why = "the job, which goes on at " + settings_.endpoint +
      ", cannot be reached there";
  move_->is_new = false;
  move_->deadline = now + settings_.node_timeout;
  act(Kind::kConnect).nodes = {other_log_->host};
  other_log_.reset();
}

// All that this node knew by it, and did in it.
void Member::forget_log(Membership next) {
  log_ = std::move(next);
  connected_ = false;
  joined_ = false;
  is_coming_ = false;
  unread_ = 0;
  reported_.clear();
  heard_.clear();
}

void Member::end_search(Time now) {
  if (move_->may_serve) {
    self_.hosts_log = true;
    move_->may_serve = false;
    move_->deadline = now + settings_.node_timeout;
    act(Kind::kServe).nodes = {self_};
  } else if (move_->is_stranger) { // the job may have ended meanwhile
    move_.reset();
    begin_anew();
  } else {
    leaving_ = {kExitInfrastructure, move_->why, now};
    move_.reset();
  }
}

} // namespace ddp
