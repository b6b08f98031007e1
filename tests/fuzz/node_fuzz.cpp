// Each line is an event of a node: an entry of the log, or a letter for others.
#include <map>
#include <sstream>
#include <string>

#include <launcher/rendezvous/log/node_state_machine.h>

using ddp::NodeStateMachine;
using Action = NodeStateMachine::Action;

// What the node writes into the log it also reads there.
static void read_own_entries(
    NodeStateMachine& node,
    NodeStateMachine::Time now) {
  for (int round = 0; round < 8; ++round) {
    for (const Action& action : node.take_actions()) {
      if (action.kind == Action::Kind::kPost) {
        node.entry(*ddp::parse_entry(ddp::entry_text(action.entry)), now);
      }
    }
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::istringstream lines({reinterpret_cast<const char*>(data), size});
  std::string line;
  std::getline(lines, line);
  ddp::NodeOptions options;
  options.most = 3;
  options.etcd.resize(line == "etcd" ? 1 : 0);
  ddp::NodeInfo self;
  self.id = "a";
  self.host = "h";
  NodeStateMachine::Time now;
  NodeStateMachine node(options, self, now);
  node.connected("10.0.0.1", line.empty(), now);
  while (std::getline(lines, line)) {
    const char event = line.empty() ? ' ' : line[0];
    if (const auto entry = ddp::parse_entry(line)) {
      node.entry(*entry, now);
    }
    event == 'b' ? node.beats({{"b", line.size()}, {"c", ddp::kDead}}, now)
        : event == 'o' ? node.store_opened(1, now)
        : event == 'f' ? node.rank_failed(1, line.size() > 1, line, now)
        : event == 'r' ? node.ranks_ended(line.size() > 1, now)
        : event == 'e' ? node.end_job(1, line, now)
        : event == 'q' ? node.leave(1, line, now)
        : event == 'l' ? node.log_lost(line, now)
                       : node.tick(now += std::chrono::seconds(line.size()));
    read_own_entries(node, now);
    node.awaited();
  }
  return 0;
}
