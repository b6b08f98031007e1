// Checks that a job never does certain things, whatever happens to it.
#include <tests/launcher/simulated_nodes.h>

#include <algorithm>
#include <set>
#include <tuple>

using ddp::Entry;

// The number in an id from add_node(), also after a new start.
static int number_of(const std::string& id) {
  return std::stoi(id.substr(2));
}

// An entry may be read late, but is true when it is posted.
void SimulatedNodes::check_posted(int index, const Entry& entry) {
  const Node& node = nodes_[index];
  if (entry.type != Entry::Type::kLost || node.log < 0) {
    return;
  }
  Log& log = logs_[node.log];
  const auto last = log.heard.find(entry.about);
  // It may have returned a moment before this node's last beats.
  const Time heard_at = node.next_beat - kBeat;
  const bool was_silent = heard_at - log.returned[entry.about] < 2 * kBeat;
  if (last != log.heard.end() && !was_silent &&
      now_ - last->second < settings_.node_timeout - 2 * kBeat) {
    faults_ += entry.about + " was said to be lost, but is heard\n";
  }
}

// Whether the ranks there can write checkpoints, by CheckpointFolder::take().
bool SimulatedNodes::may_save(int index) const {
  const Node& node = nodes_[index];
  const auto [log, epoch] = saved_;
  const bool is_later = log == node.ran_log && epoch > node.epoch;
  const bool is_another = node.taken >= 0 && log != node.taken;
  return node.epoch != 0 && node.index == 0 && !is_later && !is_another;
}

// Ranks save some time after their start, and then repeatedly.
void SimulatedNodes::save(int index) {
  if (saves_() % 4 == 0 && may_save(index)) {
    nodes_[index].taken = nodes_[index].ran_log;
    saved_ = {nodes_[index].ran_log, nodes_[index].epoch};
  }
}

// Checks a plan whose nodes all run.
void SimulatedNodes::check_plan(const Node& node) {
  const auto& plan = node.machine->membership().plan;
  const auto& nodes = plan.nodes;
  const int size = static_cast<int>(nodes.size());
  const bool fits =
      std::all_of(nodes.begin(), nodes.end(), [&](const auto& each) {
        return each.wanted_rank < size;
      });
  for (const auto& each : nodes) {
    if (fits && each.wanted_rank >= 0 &&
        plan.index_of(each.id) != each.wanted_rank) {
      faults_ += each.id + " does not have its --node-rank\n";
    }
  }
  if (!may_save(number_of(nodes.front().id))) {
    faults_ += "the ranks of a whole job cannot save\n";
  }
  for (const Node& other : nodes_) {
    if (other.epoch != 0 && other.epoch != node.epoch &&
        node.machine->membership().has(other.machine->self().id)) {
      faults_ += other.id + " has ranks of another epoch than the job\n";
    }
  }
}

// At most one plan has all of its nodes running, except for ranks that are
// asked to stop, and only ranks of one epoch can save. A node that was
// suspended needs some time to notice.
void SimulatedNodes::check() {
  std::set<std::tuple<int, int, std::string>> running;
  int savers = 0;
  for (int i = 0; i < count(); ++i) {
    const Node& each = nodes_[i];
    savers += may_save(i) && each.taken >= 0 ? 1 : 0;
    if (each.epoch == 0) {
      continue;
    }
    const ddp::Plan& plan = each.machine->membership().plan;
    const bool all =
        each.epoch == plan.epoch && !plan.nodes.empty() &&
        std::all_of(plan.nodes.begin(), plan.nodes.end(), [&](const auto& in) {
          const Node& other = nodes_[number_of(in.id)];
          return other.epoch == each.epoch && other.ran_log == each.ran_log &&
              !other.stops_at &&
              now_ > other.suspended_until + settings_.node_timeout;
        });
    if (all &&
        running.insert({each.ran_log, each.epoch, plan.nodes.front().id})
            .second) {
      check_plan(each);
    }
  }
  if (running.size() > 1) {
    faults_ += "two parts of the job run at the same time\n";
  }
  if (savers > 1) {
    faults_ += "ranks of two epochs can save\n";
  }
}
