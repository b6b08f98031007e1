#include <tests/launcher/simulated_nodes.h>

#include <algorithm>
#include <numeric>

using ddp::Entry;
using ddp::NodeStateMachine;
using std::chrono::milliseconds;
using Kind = NodeStateMachine::Action::Kind;

static constexpr int kLate = 6000; // milliseconds until an entry is written
// The fates of entries, each for one in kFates.
static constexpr int kFates = 400;
static constexpr int kLostEntry = 0;
static constexpr int kLostAnswer = 1;
static constexpr int kWrittenTwice = 2;

SimulatedNodes::SimulatedNodes(const SimulatedOptions& settings, unsigned seed)
    : settings_(settings),
      random_(seed),
      saves_(seed),
      now_(std::chrono::hours(1)),
      endpoint_(settings.has_service() ? kServer : 0) {
  if (settings_.has_service()) {
    logs_.emplace_back();
  }
}

SimulatedNodes::Duration SimulatedNodes::random_time(int least, int most) {
  return milliseconds(std::uniform_int_distribution<int>(least, most)(random_));
}

int SimulatedNodes::add_node(bool serves, int wanted_rank) {
  Node node;
  auto options = settings_;
  options.rank = wanted_rank;
  node.id = "id" + std::to_string(count());
  ddp::NodeInfo self;
  self.id = node.id;
  self.host = "n" + std::to_string(count());
  self.max_restarts = settings_.max_restarts;
  node.machine = std::make_unique<NodeStateMachine>(options, self, now_);
  node.serves_next = serves;
  if (serves) {
    endpoint_ = count();
  }
  nodes_.push_back(std::move(node));
  return count() - 1;
}

void SimulatedNodes::note(int node, const std::string& what) {
  history_ +=
      std::to_string(now_.time_since_epoch() / milliseconds(1) - 3600000) +
      " n" + std::to_string(node) + ": " + what + "\n";
}

bool SimulatedNodes::reaches(int a, int b) const {
  return a == b || cut_.count(std::minmax(a, b)) == 0;
}

void SimulatedNodes::set_link(int a, int b, bool up) {
  if (up) {
    cut_.erase(std::minmax(a, b));
  } else {
    cut_.insert(std::minmax(a, b));
    note(a, "cut from n" + std::to_string(b));
  }
}

void SimulatedNodes::mend_all() {
  cut_.clear();
  note(-1, "all links mended");
}

// Ends a node in any way, and its log with it; the kernel notifies the log's
// reachable clients.
void SimulatedNodes::go(int index, int code, const std::string& text) {
  Node& node = nodes_[index];
  node.exit_code = code;
  node.exit_text = text;
  node.epoch = 0;
  node.outbox.clear();
  note(index, "gone with " + std::to_string(code) + " " + text);
  for (Log& log : logs_) {
    log.is_open = log.is_open && log.host != index;
  }
}

void SimulatedNodes::crash(int node) {
  go(node, -2, "crashed");
}

void SimulatedNodes::leave(int node) {
  note(node, "asked to leave");
  nodes_[node].machine->leave(143, "left", now_);
}

void SimulatedNodes::suspend(int node, Duration time) {
  note(node, "is suspended");
  nodes_[node].suspended_until = now_ + time;
}

void SimulatedNodes::end_job(int node) {
  nodes_[node].machine->end_job(130, "ended", now_);
}

void SimulatedNodes::fail_rank(int index, bool is_consequence) {
  Node& node = nodes_[index];
  if (node.epoch != 0 && !node.stops_at) {
    note(index, "a rank fails");
    node.stops_at = now_ + random_time(0, 3000);
    node.machine->rank_failed(3, is_consequence, "rank failed", now_);
  }
}

void SimulatedNodes::finish_ranks(int index) {
  Node& node = nodes_[index];
  if (node.epoch != 0 && !node.stops_at) {
    note(index, "ranks finish");
    node.epoch = 0;
    node.machine->ranks_ended(true, now_);
  }
}

void SimulatedNodes::connect(int index) {
  Node& node = nodes_[index];
  if (node.has_connected || random_() % 4 != 0) {
    return;
  }
  if (node.serves_next) {
    Log log;
    log.host = index;
    logs_.push_back(log);
    node.serves_next = false;
  }
  for (size_t i = logs_.size(); i-- > 0;) {
    if (logs_[i].is_open && reaches(index, logs_[i].host) &&
        logs_[i].host == endpoint_) {
      note(index, "connects to log " + std::to_string(i));
      node.log = static_cast<int>(i);
      node.read = 0;
      node.has_connected = true;
      node.next_beat = now_;
      node.machine->connected(
          "n" + std::to_string(index), logs_[i].host == index, now_);
      return;
    }
  }
}

void SimulatedNodes::append(int index, const Entry& entry) {
  note(index, "writes " + entry_text(entry));
  logs_[nodes_[index].log].entries.push_back(entry);
}

void SimulatedNodes::write(int index) {
  Node& node = nodes_[index];
  while (node.log >= 0 && !node.outbox.empty() &&
         node.outbox.front().first <= now_ &&
         reaches(index, logs_[node.log].host)) {
    const int fate =
        settings_.loses_entries ? static_cast<int>(random_() % kFates) : kFates;
    if (fate != kLostEntry) {
      append(index, node.outbox.front().second);
    }
    if (fate == kWrittenTwice) {
      append(index, node.outbox.front().second);
    }
    node.outbox.pop_front();
    if (fate == kLostEntry || fate == kLostAnswer) {
      lose_log(index, "no answer");
    }
  }
}

void SimulatedNodes::lose_log(int index, const std::string& why) {
  Node& node = nodes_[index];
  note(index, "loses log " + std::to_string(node.log) + ": " + why);
  node.log = -1;
  node.outbox.clear();
  node.machine->log_lost(why, now_);
}

void SimulatedNodes::read(int index) {
  Node& node = nodes_[index];
  if (node.log < 0) {
    return;
  }
  const int log = node.log;
  if (!reaches(index, logs_[log].host)) {
    return;
  }
  if (!logs_[log].is_open) {
    lose_log(index, "connection closed");
    return;
  }
  while (node.exit_code == -1 && node.log == log &&
         node.read < logs_[log].entries.size() && random_() % 4 != 0) {
    const Entry entry = logs_[log].entries[node.read++];
    if (entry.sequence > node.sequences[entry.from]) {
      node.sequences[entry.from] = entry.sequence;
      node.machine->entry(entry, now_);
      act(index);
    }
  }
}

void SimulatedNodes::beat(int index) {
  Node& node = nodes_[index];
  if (node.log < 0 || now_ < node.next_beat) {
    return;
  }
  Log& log = logs_[node.log];
  if (reaches(index, log.host) && log.is_open) {
    const std::string& id = node.machine->self().id;
    node.next_beat = now_ + kBeat;
    ++log.beats[id];
    if (now_ - log.heard[id] > settings_.node_timeout - 2 * kBeat) {
      log.returned[id] = now_;
    }
    log.heard[id] = now_;
    std::map<std::string, int64_t> beats;
    for (const auto& each : node.machine->watched()) {
      beats[each] = log.beats[each];
    }
    node.machine->beats(beats, now_);
  }
}

void SimulatedNodes::resolve_ranks(int index) {
  Node& node = nodes_[index];
  if (node.stops_at && now_ >= *node.stops_at) {
    node.stops_at.reset();
    node.epoch = 0;
    note(index, "ranks are gone");
    node.machine->ranks_ended(false, now_);
  }
  if (node.opens_at && now_ >= *node.opens_at) {
    node.opens_at.reset();
    node.machine->store_opened(1, now_);
  }
}

void SimulatedNodes::act(int index) {
  Node& node = nodes_[index];
  for (const NodeStateMachine::Action& action : node.machine->take_actions()) {
    switch (action.kind) {
      case Kind::kPost: {
        check_posted(index, action.entry);
        const Time last = node.outbox.empty() ? now_ : node.outbox.back().first;
        const bool is_late = settings_.loses_entries && random_() % 32 == 0;
        const int latest = is_late ? kLate : 200;
        node.outbox.emplace_back(
            std::max(last, now_ + random_time(0, latest)), action.entry);
        node.outbox.back().second.sequence = ++node.written;
        break;
      }
      case Kind::kOpenStore:
        node.opens_at = now_ + random_time(0, 100);
        break;
      case Kind::kStart:
        if (node.epoch != 0) {
          faults_ += node.id + " starts ranks beside others\n";
        }
        node.epoch = node.machine->membership().plan.epoch;
        node.ran_log = node.log;
        node.index = action.index;
        node.taken = -1;
        note(index, "runs epoch " + std::to_string(node.epoch));
        break;
      case Kind::kStop:
        node.stops_at = now_ + random_time(0, 3000);
        break;
      case Kind::kKill:
        node.stops_at = now_;
        break;
      case Kind::kBeginAnew: {
        ddp::NodeInfo self = node.machine->self();
        self.id += "n";
        auto options = settings_;
        options.rank = self.wanted_rank;
        node.machine = std::make_unique<NodeStateMachine>(
            options, self, node.machine->gathering_since());
        node.log = -1;
        node.outbox.clear();
        node.sequences.clear();
        node.has_connected = false;
        note(index, "looks for a log");
        break;
      }
      case Kind::kExit:
        if (node.epoch != 0) {
          faults_ += node.id + " exits while ranks run\n";
        }
        go(index, action.code, action.text);
        return;
    }
  }
}

void SimulatedNodes::step(int index) {
  Node& node = nodes_[index];
  connect(index);
  act(index);
  write(index);
  read(index);
  if (node.exit_code != -1) {
    return;
  }
  beat(index);
  resolve_ranks(index);
  const auto deadline = node.machine->deadline();
  if (deadline && now_ >= *deadline) {
    node.machine->tick(now_);
  }
  act(index);
}

bool SimulatedNodes::run_for(Duration time) {
  const Time end = now_ + time;
  while (now_ < end && faults_.empty()) {
    now_ += random_time(20, 300);
    std::vector<int> order(nodes_.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    for (int each : order) {
      if (lives(each) && now_ >= nodes_[each].suspended_until) {
        step(each);
      }
    }
    for (int i = 0; i < count(); ++i) {
      save(i);
    }
    check();
  }
  return std::any_of(nodes_.begin(), nodes_.end(), [](const Node& each) {
    return each.exit_code == -1;
  });
}
