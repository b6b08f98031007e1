// What one node decides for all.
#include <launcher/rendezvous/log/member.h>

#include <utility>

#include <common/scheduler/launch_error.h>
#include <common/text.h>

namespace ddp {
namespace {

using Type = Entry::Type;
using Phase = Membership::Phase;

} // namespace

// The first node that is heard says which others are silent.
void Member::report_silence(Time now) {
  const auto is_silent = [&](const std::string& id) {
    return id != self_.id && now - heard_[id].at > options_.node_timeout;
  };
  for (const NodeInfo& each : log_.nodes) {
    if (each.id == self_.id) {
      break;
    }
    if (!is_silent(each.id)) {
      return; // it will say so
    }
  }
  for (const std::string& id : watched()) {
    if (is_silent(id) && reported_.insert(id).second) {
      const NodeInfo* node = log_.find(id);
      Entry& entry = post(Type::kLost);
      entry.about = id;
      entry.text = "node " + (node == nullptr ? id : node->host) +
          " was not heard for " + describe_time(options_.node_timeout) +
          " (--node-timeout)";
    }
  }
}

// Decides for all, once it has read all that it said itself.
void Member::lead(Time now) {
  if (log_.leader() != self_.id || unread_ > 0) {
    return;
  }
  if (log_.phase == Phase::kGathering && now >= calm_until_) {
    gather(now);
  } else if (log_.phase == Phase::kRunning) {
    regroup(now);
  }
}

// The nodes of the next plan. One that asks for a taken place waits for it.
std::vector<NodeInfo> Member::candidates() const {
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

// Whether the job has room for nodes that come after its start.
bool Member::takes_others() const {
  return self_.max_restarts > 0 || options_.least < options_.most;
}

void Member::gather(Time now) {
  std::vector<NodeInfo> nodes = candidates();
  const auto count = static_cast<int>(nodes.size());
  const bool is_first = log_.plan.nodes.empty();
  const bool is_late = now >= last_join_ + options_.last_call;
  const auto survivors = static_cast<int>(log_.survivors().size());
  const bool is_over =
      !is_first && survivors < options_.least && !takes_others();
  const bool is_full = count == options_.most;
  if (is_over) {
    post_end(kExitInfrastructure, log_.cause_text);
  } else if (count >= options_.least && (is_full || !is_first || is_late)) {
    post_plan(std::move(nodes));
  } else if (now >= gathering_since_ + options_.join_timeout) {
    post_end(
        kExitTimeout,
        "after " + describe_time(options_.join_timeout) + " still " +
            awaited());
  }
}

void Member::post_plan(std::vector<NodeInfo> nodes) {
  const bool is_restart = log_.cause == Membership::Cause::kFailure;
  Entry& entry = post(Type::kPlan);
  entry.plan.epoch = log_.plan.epoch + 1;
  entry.plan.restarts = log_.plan.restarts + (is_restart ? 1 : 0);
  entry.plan.max_restarts = self_.max_restarts;
  entry.plan.nodes = std::move(nodes);
  entry.epoch = entry.plan.epoch;
}

// Makes room for nodes that came while the ranks run. Several that come
// together cost one restart.
void Member::regroup(Time now) {
  const Plan& plan = log_.plan;
  const bool has_room = static_cast<int>(plan.nodes.size()) < options_.most;
  const std::vector<NodeInfo> nodes = candidates();
  const bool may_grow = static_cast<int>(nodes.size()) < options_.most;
  if (!has_room || regrouped_epoch_ == plan.epoch || !log_.finished.empty() ||
      (may_grow && now < last_join_ + options_.last_call)) {
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
  regrouped_epoch_ = plan.epoch;
  post(Type::kRegroup).text = (newcomers.size() == 1 ? "node " : "nodes ") +
      hosts_of(newcomers) + " joined";
}

} // namespace ddp
