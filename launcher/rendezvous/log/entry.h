#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <launcher/rendezvous/log/plan.h>

namespace ddp {

/// What a node writes into the job's log, which all nodes read in one order.
struct Entry {
  enum class Type {
    kJoin, // it takes part
    kLeave, // it takes part no more; its ranks are being stopped
    kLost, // the leader has not heard of a node for too long
    kPlan, // the leader says who takes part in the next epoch
    kReady, // a node has read the plan
    kStart, // all are ready: the plan's first node says where its ranks meet
    kFailed, // a rank of a node failed
    kStopped, // a node has no rank any more
    kFinished, // all ranks of a node exited with 0
    kRegroup, // the leader ends the epoch so that nodes can join
    kEnd, // the job ends
  };

  Type type = Type::kJoin;
  std::string from; // the writer's id
  int64_t sequence = 0; // of the writer's entries: 1, 2, ...
  int epoch = 0; // of which it speaks
  NodeInfo node; // kJoin
  Plan plan; // kPlan; of its nodes the ids
  std::string about; // kLost: the lost node's id
  std::string address; // kStart
  int port = 0; // kStart
  int code = 0; // kFailed, kEnd: ddprun's exit code
  bool is_consequence = false; // kFailed: of another rank's failure
  std::string text; // why, for people
};

/// As JSON, and back; none where the text is no entry.
std::string entry_text(const Entry& entry);
std::optional<Entry> parse_entry(const std::string& text);

} // namespace ddp
