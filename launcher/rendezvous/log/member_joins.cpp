// How a node comes to a job, and how it goes.
#include <launcher/rendezvous/log/member.h>

#include <algorithm>

#include <common/scheduler/launch_error.h>
#include <common/text.h>

namespace ddp {
namespace {

using Type = Entry::Type;
using Phase = Membership::Phase;

// "2" or "1:4", as --nnodes has it.
std::string range_of(const NodeInfo& node) {
  const std::string most = std::to_string(node.max_nodes);
  return node.min_nodes == node.max_nodes
      ? most
      : std::to_string(node.min_nodes) + ":" + most;
}

// How long the log's host waits for others to read how the job ended.
constexpr std::chrono::seconds kGoodbyeTime(5);

} // namespace

void Member::join() {
  state_ = State::kJoined;
  post(Type::kJoin).node = self_;
}

// Of what has to be the same on all nodes of a job; empty where all of it is.
std::string Member::difference_to(const NodeInfo& other) const {
  const auto difference = [&](const std::string& option,
                              const std::string& theirs,
                              const std::string& own) {
    return theirs == own ? ""
                         : option + " differs from that of node " + other.host +
            ": " + own + " here, " + theirs + " there";
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

// Whether this node belongs to those that joined before it.
void Member::check_fit(Time now) {
  const bool is_open = takes_others();
  std::string text = difference_to(log_.nodes.front());
  if (text.empty() && !is_open && !log_.plan.nodes.empty() &&
      static_cast<int>(log_.plan.nodes.size()) == options_.most) {
    text = "the job at " + endpoint() + " has its nodes (" +
        hosts_of(log_.plan.nodes) +
        ") and takes no other; another job needs an endpoint or a --rdzv-id "
        "of its own";
  }
  for (const NodeInfo& each : log_.nodes) {
    if (text.empty() && !is_open && each.id != self_.id &&
        self_.wanted_rank >= 0 && each.wanted_rank == self_.wanted_rank) {
      text = "node " + each.host + " has the same --node-rank, " +
          std::to_string(self_.wanted_rank);
    }
  }
  if (!text.empty() && options_.has_service() && !log_.plan.nodes.empty()) {
    // A service keeps what nobody is left to end.
    state_ = State::kDoubting;
    text_ = text;
    until_ = now + 3 * options_.node_timeout / 2;
  } else if (!text.empty()) {
    leave(kExitUsage, text, now);
  }
}

// With a job that ended: the log's host is the last to go.
void Member::end(Time now) {
  stop_ranks(log_.cause_text);
  if (ranks_ != Ranks::kNone) {
    return;
  }
  if (state_ != State::kGoodbye) {
    state_ = State::kGoodbye;
    until_ = connected_ ? now + kGoodbyeTime : now;
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

std::string Member::end_text() const {
  if (started_epoch_ == 0 && log_.cause != Membership::Cause::kEnd) {
    return "the job ended without this node, as it had its nodes: " +
        hosts_of(log_.plan.nodes);
  }
  const bool is_told = log_.cause == Membership::Cause::kFailure;
  return is_told ? "" : log_.cause_text;
}

std::string Member::awaited() const {
  if (!connected_) {
    return "waiting for the rendezvous at " + endpoint() +
        (unreachable_.empty() ? "" : " (" + unreachable_ + ")");
  }
  if (state_ == State::kDoubting) {
    return text_ + " (unless its nodes are silent)";
  }
  const Phase phase = log_.phase;
  if (phase == Phase::kEnded) {
    return "waiting until the job that has ended at " + endpoint() +
        " is gone from there";
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
      (has_strangers_ ? "; some node has another token (DDP_TOKEN, --token), "
                        "--rdzv-id or version of ddprun"
                      : "");
}

} // namespace ddp
