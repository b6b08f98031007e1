#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <common/file_descriptor.h>
#include <launcher/job.h>
#include <launcher/rendezvous/authentication.h>
#include <launcher/rendezvous/log/node_state_machine.h>
#include <launcher/rendezvous/log/shared_log.h>

namespace ddp {

/// This node's part in a job: does what its NodeStateMachine decides, but for
/// the ranks, which are the agent's. The log of a job of one node is in this
/// process.
class Rendezvous {
 public:
  using Time = NodeStateMachine::Time;

  /// What the agent is to do: kStart, kStop, kKill or kExit.
  using Command = NodeStateMachine::Action;

  /// Starts to find the log of the job, which has to outlive this, or to serve
  /// it; handle_events() throws LaunchError where that cannot be.
  explicit Rendezvous(const Job& job);

  /// Becomes readable when handle_events() has something to do.
  int fd() const {
    return events_.get();
  }
  void handle_events(Time now);
  /// When tick() wants to be called.
  std::optional<Time> deadline() const {
    return machine_.deadline();
  }
  void tick(Time now);
  /// Does what the state machine asks for, but what the agent is to do.
  std::vector<Command> take_commands(Time now);

  /// Where the ranks of the plan's first node serve their store.
  Listener take_listener();

  /// The process that speaks to the log's store; -1 where there is none.
  pid_t helper() const {
    return log_ ? log_->pid() : -1;
  }
  const Membership& membership() const {
    return machine_.membership();
  }
  /// To be told of the ranks, and asked; take_commands() does what follows.
  NodeStateMachine& machine() {
    return machine_;
  }
  /// Of the job's log alone.
  const std::string& log_name() const {
    return log_name_;
  }

 private:
  void open_log();
  void handle(const SharedLog::Event& event, Time now);
  void read_entry(const std::string& sealed, Time now);
  void connected(const SharedLog::Event& event, Time now);
  std::string last_will() const;
  void open_store(Time now);
  void carry_out(Time now);
  void carry_out(const NodeStateMachine::Action& action, Time now);
  void post(Entry entry);

  const Job& job_;
  const NodeOptions& nodes_; // of it
  std::string log_name_;
  FileDescriptor events_;
  Authenticator authenticator_;
  std::unique_ptr<SharedLog> log_; // null in a job of one node
  std::deque<Entry> unread_; // in its place
  NodeStateMachine machine_;
  Listener ranks_store_;
  std::map<std::string, int64_t> read_; // the last sequence by writer
  int64_t written_ = 0;
  std::vector<Command> commands_;
};

} // namespace ddp
