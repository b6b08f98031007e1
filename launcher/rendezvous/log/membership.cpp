#include <launcher/rendezvous/log/membership.h>

#include <algorithm>
#include <utility>

namespace ddp {

// The old job's ranks may still run, but save nothing once a later epoch has.
Membership Membership::after_job() const {
  Membership fresh(outlives_jobs_);
  fresh.lost_ = lost_;
  fresh.plan.epoch = plan.epoch;
  fresh.first_epoch = plan.epoch + 1;
  return fresh;
}

const NodeInfo* Membership::find(const std::string& id) const {
  const auto found =
      std::find_if(nodes.begin(), nodes.end(), [&](const NodeInfo& each) {
        return each.id == id;
      });
  return found == nodes.end() ? nullptr : &*found;
}

bool Membership::is_host(const std::string& id) const {
  const NodeInfo* node = find(id);
  return node != nullptr && node->hosts_log;
}

std::vector<NodeInfo> Membership::survivors() const {
  std::vector<NodeInfo> found;
  for (const NodeInfo& each : plan.nodes) {
    if (has(each.id)) {
      found.push_back(each);
    }
  }
  return found;
}

std::vector<NodeInfo> Membership::awaited() const {
  std::vector<NodeInfo> found;
  for (const NodeInfo& each : plan.nodes) {
    if (busy_.count(each.id) != 0) {
      found.push_back(each);
    }
  }
  return found;
}

bool Membership::in_epoch(const Entry& entry) const {
  return has_epoch() && entry.epoch == plan.epoch && has(entry.from) &&
      plan.index_of(entry.from) >= 0;
}

void Membership::apply(const Entry& entry) {
  if (phase == Phase::kEnded) {
    if (entry.type == Entry::Type::kLeave) {
      left.insert(entry.from); // has read how the job ended
    } else if (entry.type == Entry::Type::kJoin && outlives_jobs_) {
      *this = after_job();
      join(entry);
    }
    return;
  }
  switch (entry.type) {
    case Entry::Type::kJoin:
      join(entry);
      break;
    case Entry::Type::kLeave:
      if (has(entry.from)) {
        left.insert(entry.from);
        remove(entry.from, entry.text);
      }
      break;
    case Entry::Type::kLost:
      if (has(entry.from)) {
        lost_.insert(entry.about);
        remove(entry.about, entry.text);
      }
      break;
    case Entry::Type::kPlan:
      start_epoch(entry);
      break;
    case Entry::Type::kEnd:
      end(entry);
      break;
    default:
      if (in_epoch(entry)) {
        go_on(entry);
      }
  }
}

// Applies an entry of one of the epoch's nodes.
void Membership::go_on(const Entry& entry) {
  switch (entry.type) {
    case Entry::Type::kReady:
      ready_.insert(entry.from);
      break;
    case Entry::Type::kStart:
      if (phase == Phase::kStarting && is_confirmed() &&
          plan.index_of(entry.from) == 0) {
        address = entry.address;
        port = entry.port;
        phase = Phase::kRunning;
      }
      break;
    case Entry::Type::kFailed:
      add_failure(entry);
      break;
    case Entry::Type::kFinished:
      finished.insert(entry.from);
      still_quiet_.clear(); // the others may have waited for these ranks
      [[fallthrough]];
    case Entry::Type::kStopped:
      busy_.erase(entry.from);
      conclude_epoch();
      break;
    case Entry::Type::kReRendezvous:
      if (entry.from == leader()) {
        stop(Cause::kNodes, entry.text);
      }
      break;
    case Entry::Type::kQuiet:
      if (phase == Phase::kRunning) {
        add_quiet(entry);
      }
      break;
    case Entry::Type::kMoves:
      quiet_.erase(entry.from);
      still_quiet_.clear();
      break;
    default:
      break;
  }
}

bool Membership::must_end() const {
  const bool has_stopped =
      phase == Phase::kStopping || phase == Phase::kGathering;
  if (!enders_.empty() || plan.nodes.empty() || !has_stopped) {
    return !enders_.empty();
  }
  const NodeInfo& first = (nodes.empty() ? plan.nodes : nodes).front();
  return first.max_restarts == 0 && first.min_nodes == first.max_nodes;
}

void Membership::join(const Entry& entry) {
  if (!outlives_jobs_ && must_end()) {
    return; // it waits for the next job
  }
  // A lost node leaves as soon as it reads that it is lost.
  if (!has(entry.node.id) && lost_.count(entry.node.id) == 0) {
    nodes.push_back(entry.node);
  }
}

void Membership::remove(const std::string& id, const std::string& why) {
  if (!has(id)) {
    return;
  }
  const bool matters = plan.index_of(id) >= 0 && finished.count(id) == 0;
  nodes.erase(nodes.begin() + (find(id) - nodes.data()));
  busy_.erase(id);
  if (outlives_jobs_ && survivors().empty()) {
    // No node of the job is left: nodes that joined later begin another job.
    Membership next = after_job();
    next.nodes = std::move(nodes);
    *this = std::move(next);
    return;
  }
  if (matters) {
    stop(Cause::kNodes, why);
  }
  conclude_epoch();
}

void Membership::start_epoch(const Entry& entry) {
  const Plan& next = entry.plan;
  const bool fits = phase == Phase::kGathering && entry.from == leader() &&
      next.epoch == plan.epoch + 1 && !next.nodes.empty() &&
      std::all_of(next.nodes.begin(), next.nodes.end(), [&](const auto& each) {
                      return has(each.id);
                    });
  if (!fits) {
    return; // a node left meanwhile: the leader makes another plan
  }
  plan = next;
  for (NodeInfo& each : plan.nodes) {
    each = *find(each.id);
    busy_.insert(each.id);
  }
  ready_.clear();
  phase = Phase::kStarting;
  cause = Cause::kNone;
  cause_text.clear();
  failure.reset();
  hangs = false;
  finished.clear();
  quiet_.clear();
  still_quiet_.clear();
}

void Membership::add_failure(const Entry& entry) {
  // The node that failed may know more about its failure later.
  if (!failure || failure->node == entry.from ||
      (failure->is_consequence && !entry.is_consequence)) {
    failure = {entry.from, entry.code, entry.is_consequence, entry.text};
  }
  stop(Cause::kFailure, entry.text);
}

// While entries are on their way, ranks may make progress again. The job hangs
// if each node says that its ranks do not after it has read this of all nodes.
void Membership::add_quiet(const Entry& entry) {
  (are_all_in(quiet_) ? still_quiet_ : quiet_).insert(entry.from);
  if (are_all_in(still_quiet_)) {
    hangs = true;
    add_failure(entry);
  }
}

// Whether all nodes whose ranks have yet to end are among these.
bool Membership::are_all_in(const std::set<std::string>& ids) const {
  return std::includes(ids.begin(), ids.end(), busy_.begin(), busy_.end());
}

// The first cause counts, except that the end of the job replaces any other
// cause, and a lost node replaces the failures that it caused elsewhere.
void Membership::stop(Cause why, const std::string& text) {
  if (!has_epoch()) {
    return;
  }
  const bool explains = why == Cause::kNodes && cause == Cause::kFailure &&
      failure->is_consequence;
  if (cause == Cause::kNone || why == Cause::kEnd || explains) {
    cause = why;
    cause_text = text;
  }
  phase = Phase::kStopping;
}

// Only participating nodes can end the job: others may be there by mistake.
void Membership::end(const Entry& entry) {
  const bool may_end = entry.from == leader() || plan.index_of(entry.from) >= 0;
  if (!has(entry.from) || !may_end) {
    return;
  }
  is_urgent = !enders_.insert(entry.from).second || is_urgent;
  if (cause == Cause::kEnd) {
    return;
  }
  exit_code = entry.code;
  if (has_failed()) {
    return; // the failure ends it
  }
  if (phase == Phase::kGathering) {
    cause = Cause::kEnd;
    cause_text = entry.text;
    phase = Phase::kEnded;
    return;
  }
  stop(Cause::kEnd, entry.text);
  conclude_epoch();
}

// Once no rank is left, the job is over, or the leader makes a new plan.
void Membership::conclude_epoch() {
  if (!has_epoch() || !busy_.empty()) {
    return;
  }
  if (phase != Phase::kStopping) { // all that are left have finished
    exit_code = 0;
    phase = Phase::kEnded;
  } else if (has_failed()) {
    exit_code = failure->code;
    phase = Phase::kEnded;
  } else {
    phase = enders_.empty() ? Phase::kGathering : Phase::kEnded;
  }
}

} // namespace ddp
