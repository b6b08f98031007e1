// How a node joins and leaves a job, and its decisions for all nodes.
#include <launcher/rendezvous/log/node_state_machine.h>

#include <algorithm>
#include <utility>

#include <common/scheduler/launch_error.h>
#include <common/text.h>

namespace ddp {
namespace {

using Type = Entry::Type;
using Phase = Membership::Phase;

// "2" or "1:4", as in --nnodes.
std::string range_of(const NodeInfo& node) {
  const std::string most = std::to_string(node.max_nodes);
  return node.min_nodes == node.max_nodes
      ? most
      : std::to_string(node.min_nodes) + ":" + most;
}

// The time that the log's host waits for other nodes to read how the job ended.
constexpr std::chrono::seconds kShutdownTime(5);

} // namespace

void NodeStateMachine::join() {
  state_ = State::kJoined;
  post(Type::kJoin).node = self_;
}

// A difference in options that must be equal on all nodes; empty if there is
// none.
std::string NodeStateMachine::difference_to(const NodeInfo& other) const {
  const auto difference = [&](const std::string& option,
                              const std::string& theirs,
                              const std::string& own) {
    return theirs == own ? ""
                         : option + " differs on node " + other.host + ": " +
            own + " here, " + theirs + " there";
  };
  std::string text = difference("--nnodes", range_of(other), range_of(self_));
  if (text.empty()) {
    text = difference(
        "--max-restarts",
        std::to_string(other.max_restarts),
        std::to_string(self_.max_restarts));
  }
  return text;
}

// Checks whether this node fits the nodes that joined before it.
void NodeStateMachine::check_fit(Time now) {
  const bool is_open = takes_others();
  std::string text = difference_to(log_.nodes.front());
  if (text.empty() && !is_open && !log_.plan.nodes.empty() &&
      static_cast<int>(log_.plan.nodes.size()) == options_.most) {
    text = "the job at " + endpoint() + " has all its nodes (" +
        hosts_of(log_.plan.nodes) +
        ") and accepts no other node; another job needs a different endpoint "
        "or --rdzv-id";
  }
  for (const NodeInfo& each : log_.nodes) {
    if (text.empty() && !is_open && each.id != self_.id &&
        self_.wanted_rank >= 0 && each.wanted_rank == self_.wanted_rank) {
      text = "node " + each.host + " has the same --node-rank, " +
          std::to_string(self_.wanted_rank);
    }
  }
  if (!text.empty() && options_.has_service() && !log_.plan.nodes.empty()) {
    // A service keeps the log of a job even if all its nodes have died.
    state_ = State::kProbation;
    text_ = text;
    until_ = now + 3 * options_.node_timeout / 2;
  } else if (!text.empty()) {
    leave(kExitUsage, text, now);
  }
}

// Looks for the log of another job.
void NodeStateMachine::begin_anew(const std::string& text) {
  act(Action::Kind::kBeginAnew).text = text;
  state_ = State::kGone;
}

// Leaves a job that has ended; the log's host is the last to leave.
void NodeStateMachine::end(Time now) {
  stop_ranks(log_.cause_text);
  if (ranks_ != Ranks::kNone) {
    return;
  }
  if (state_ != State::kShutdown) {
    state_ = State::kShutdown;
    until_ = is_connected() ? now + kShutdownTime : now;
    post(Type::kLeave);
  }
  const auto& nodes = log_.nodes;
  const bool all_know =
      std::all_of(nodes.begin(), nodes.end(), [&](const NodeInfo& each) {
        return log_.left.count(each.id) != 0;
      });
  const bool may_go =
      self_.hosts_log ? all_know : log_.left.count(self_.id) != 0;
  if (may_go || now >= until_) {
    exit(log_.exit_code, end_text());
  }
}

std::string NodeStateMachine::end_text() const {
  if (started_epoch_ == 0 && log_.cause != Membership::Cause::kEnd) {
    return "the job ended without this node, since it had enough nodes: " +
        hosts_of(log_.plan.nodes);
  }
  const bool is_told = log_.cause == Membership::Cause::kFailure;
  return is_told ? "" : log_.cause_text;
}

std::string NodeStateMachine::awaited() const {
  if (!is_connected()) {
    return "waiting for the rendezvous at " + endpoint() +
        (unreachable_.empty() ? "" : " (" + unreachable_ + ")");
  }
  if (state_ == State::kProbation) {
    return "waiting to see whether the job's nodes still respond: " + text_;
  }
  const Phase phase = log_.phase;
  if (phase == Phase::kEnded) {
    return "waiting until the ended job releases " + endpoint();
  }
  if (phase == Phase::kStopping || phase == Phase::kRunning) {
    return "waiting for the ranks of " + hosts_of(log_.awaited()) +
        (phase == Phase::kRunning ? " to finish"
                                  : " to stop: " + first_line(log_.cause_text));
  }
  const std::string least = std::to_string(options_.least);
  const std::string most = std::to_string(options_.most);
  return "waiting for nodes: " + std::to_string(log_.nodes.size()) + " of " +
      (least == most ? least : least + " to " + most) + " joined (" +
      hosts_of(log_.nodes) + ")" +
      (access_ == Access::kUntrusted
           ? "; a node uses a different token (DDP_TOKEN, --token), "
             "--rdzv-id or version of ddprun: use the same on all, and another "
             "endpoint for another job"
           : "");
}

// Decisions of one node for all

bool NodeStateMachine::is_silent(const std::string& id, Time now) const {
  const auto found = heard_.find(id);
  return id != self_.id && found != heard_.end() &&
      now - found->second.at > options_.node_timeout;
}

// The first node that responds reports which others are silent.
void NodeStateMachine::report_silence(Time now) {
  const auto& nodes = log_.nodes;
  const auto first =
      std::find_if(nodes.begin(), nodes.end(), [&](const NodeInfo& each) {
        return !is_silent(each.id, now);
      });
  if (first == nodes.end() || first->id != self_.id) {
    return;
  }
  for (const NodeInfo& each : log_.nodes) {
    if (is_silent(each.id, now) && reported_.insert(each.id).second) {
      Entry& entry = post(Type::kLost);
      entry.about = each.id;
      entry.text = "node " + each.host + " has not responded for " +
          describe_time(options_.node_timeout) + " (--node-timeout)";
    }
  }
}

// Watches enough nodes to know whether a node before this node responds.
void NodeStateMachine::choose_watched(Time now) {
  const bool is_leader = log_.leader() == self_.id;
  int heard = 0;
  watched_.clear();
  for (const NodeInfo& each : log_.nodes) {
    if (each.id != self_.id && (is_leader || heard < options_.most_watched)) {
      watched_.insert(each.id);
      heard += is_silent(each.id, now) ? 0 : 1;
    }
  }
}

// Decides for all nodes, once it has read all its own entries.
void NodeStateMachine::lead(Time now) {
  if (log_.leader() != self_.id || unread_ > 0) {
    return;
  }
  if (log_.phase == Phase::kGathering && now >= cooldown_until_) {
    gather(now);
  } else if (log_.phase == Phase::kRunning) {
    re_rendezvous(now);
  }
}

// Whether no node of this job has served the log. It then belongs to another
// job, with another token or --rdzv-id, whose entries this node cannot read.
bool NodeStateMachine::is_log_of_others() const {
  return !options_.has_service() && !has_host_;
}

// The nodes of the next plan. A node that asks for a taken place waits for it.
std::vector<NodeInfo> NodeStateMachine::candidates() const {
  std::set<int> taken;
  std::vector<NodeInfo> found;
  for (const NodeInfo& each : log_.nodes) {
    if (each.wanted_rank < 0 || taken.insert(each.wanted_rank).second) {
      found.push_back(each);
    }
  }
  found = in_order(std::move(found), log_.plan);
  const auto most = static_cast<size_t>(options_.most);
  if (found.size() > most) {
    found.resize(most);
  }
  return found;
}

// Whether the job accepts nodes after its start.
bool NodeStateMachine::takes_others() const {
  return self_.max_restarts > 0 || options_.least < options_.most;
}

void NodeStateMachine::gather(Time now) {
  const bool is_first = log_.plan.nodes.empty();
  const bool is_late = now >= last_join_ + options_.last_call;
  const auto survivors = static_cast<int>(log_.survivors().size());
  const auto enough = static_cast<size_t>(
      is_first && !is_late ? options_.most : options_.least);
  std::vector<NodeInfo> nodes;
  // Not at each of many joins.
  if (log_.nodes.size() >= enough && !is_log_of_others()) {
    nodes = candidates();
  }
  if (!is_first && survivors < options_.least && !takes_others()) {
    post_end(kExitInfrastructure, log_.cause_text);
  } else if (nodes.size() >= enough) {
    post_plan(std::move(nodes));
  } else if (now >= gathering_since_ + options_.join_timeout) {
    post_end(
        access_ == Access::kUntrusted ? kExitUsage : kExitTimeout,
        "after " + describe_time(options_.join_timeout) + " still " +
            awaited());
  }
}

void NodeStateMachine::post_plan(std::vector<NodeInfo> nodes) {
  const bool is_restart = log_.cause == Membership::Cause::kFailure;
  Entry& entry = post(Type::kPlan);
  entry.plan.epoch = log_.plan.epoch + 1;
  entry.plan.restarts = log_.plan.restarts + (is_restart ? 1 : 0);
  entry.plan.max_restarts = self_.max_restarts;
  entry.plan.nodes = std::move(nodes);
  entry.epoch = entry.plan.epoch;
}

// Makes room for nodes that joined while the ranks run. Several that join
// together cost one restart.
void NodeStateMachine::re_rendezvous(Time now) {
  const Plan& plan = log_.plan;
  const bool has_room = static_cast<int>(plan.nodes.size()) < options_.most;
  if (!has_room || re_rendezvous_epoch_ == plan.epoch ||
      !log_.finished.empty()) {
    return;
  }
  const std::vector<NodeInfo> nodes = candidates();
  const bool may_grow = static_cast<int>(nodes.size()) < options_.most;
  if (may_grow && now < last_join_ + options_.last_call) {
    return;
  }
  std::vector<NodeInfo> newcomers;
  for (const NodeInfo& each : nodes) {
    if (plan.index_of(each.id) < 0) {
      newcomers.push_back(each);
    }
  }
  if (newcomers.empty()) {
    return;
  }
  re_rendezvous_epoch_ = plan.epoch;
  post(Type::kReRendezvous).text =
      (newcomers.size() == 1 ? "node " : "nodes ") + hosts_of(newcomers) +
      " joined";
}

} // namespace ddp
