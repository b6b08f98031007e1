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

/// This node's part in a job: carries out the actions of its NodeStateMachine,
/// except actions on the ranks, which the agent carries out. In a job of one
/// node, the log is in this process.
class Rendezvous {
 public:
  using Time = NodeStateMachine::Time;

  /// An action for the agent: kStart, kStop, kKill or kExit.
  using Command = NodeStateMachine::Action;

  /// Starts to connect to the job's log, or to serve it; handle_events() throws
  /// LaunchError if that is impossible. `job` must outlive this object.
  explicit Rendezvous(const Job& job);

  /// Becomes readable when handle_events() has events to handle.
  int fd() const {
    return events_.get();
  }
  void handle_events(Time now);
  /// The time at which to call tick().
  std::optional<Time> deadline() const;
  void tick(Time now);
  /// Carries out the state machine's actions, and returns those for the agent.
  std::vector<Command> take_commands(Time now);

  /// The listener of the ranks' store, on the plan's first node.
  Listener take_listener();

  /// The helper process of the log; -1 if there is none.
  pid_t helper() const {
    return log_ ? log_->pid() : -1;
  }
  const Membership& membership() const {
    return machine_.membership();
  }
  /// Receives events of the ranks; take_commands() carries out the resulting
  /// actions.
  NodeStateMachine& machine() {
    return machine_;
  }
  /// The unique name of the job's log.
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
  const NodeOptions& nodes_; // of the job
  std::string log_name_;
  FileDescriptor events_;
  Authenticator authenticator_;
  std::unique_ptr<SharedLog> log_; // null in a job of one node
  std::deque<Entry> unread_; // used in a job of one node
  NodeStateMachine machine_;
  std::optional<Time> reopening_at_; // the log, after it was lost
  Listener ranks_store_;
  std::map<std::string, int64_t> read_; // last sequence by writer
  int64_t written_ = 0;
  std::vector<Command> commands_;
};

} // namespace ddp
