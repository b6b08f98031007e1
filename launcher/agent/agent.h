#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/resource.h>

#include <common/file_descriptor.h>
#include <common/processes/failure.h>
#include <common/processes/supervisor.h>
#include <launcher/agent/attempt.h>
#include <launcher/agent/progress_watch.h>
#include <launcher/job.h>
#include <launcher/output/output_multiplexer.h>
#include <launcher/processes.h>
#include <launcher/rendezvous/rendezvous.h>
#include <launcher/report/report.h>

namespace ddp {

/// The process that owns the ranks: starts them, restarts them after a failure
/// if restarts are left, forwards their output, carries out the Supervisor's
/// decisions, and leaves no descendant behind. The agent ends if the launcher
/// process dies: `lifeline` then reads end-of-file.
class Agent {
 public:
  Agent(Job& job, FileDescriptor lifeline);

  /// Runs the job to its end. Returns the exit code: 0 if every rank exited
  /// with 0, otherwise the code of the rank that failed first, 128 + s after
  /// signal s, or a code of launch_error.h. Throws LaunchError or
  /// std::system_error if the ranks cannot be started. Exits instead of
  /// returning if the launcher process dies, or if a reader other than a
  /// terminal does not take the last output of a stopped job.
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  static constexpr std::chrono::seconds kTickTime{1};
  /// The time that a stopped job waits for a reader that has stopped reading (a
  /// pager).
  static constexpr std::chrono::seconds kLastOutputTime{5};
  /// The times after which messages name the missing nodes, first and again.
  static constexpr std::chrono::seconds kMissingTime{5};
  static constexpr std::chrono::seconds kStillMissingTime{60};
  /// After this time the agent reports which ranks wait for a rank that has
  /// left.
  static constexpr std::chrono::seconds kLongWait{10};

  void start_attempt(Listener listener);
  void end_attempt();
  void end_all_but_helpers() const;
  void await_output();

  // Events of the nodes' log; a job of one node has a private log:
  Rendezvous::Command await_command();
  void take_commands();
  void run_planned(int index);
  void set_place(int index);
  void withdraw(int code, const std::string& why);
  void decline();
  void give_up_start();
  std::string reason_to_stop(const Rendezvous::Command& command) const;
  void tell_others();
  void keep_reason();
  void say_reason();
  void say_what_starts(const Plan& plan);
  void leave_job(int signal);
  bool awaits_others();
  void say_who_is_missing(Time now);
  int conclude(const Rendezvous::Command& exit);
  int tell_end(JobReport report);
  std::string name_of_node(const std::string& id) const;
  std::string own_name();

  // For ranks that stay alive while nodes join and leave (ddp::elastic):
  bool may_pause() const;
  bool begin_pause(Time now);
  void watch_pause(Time now);
  void end_pause(Listener listener);
  void end_paused_ranks();

  void watch(int fd);
  void unwatch(int fd);
  template <typename Condition>
  void wait_while(const Condition& holds) {
    while (holds()) {
      wait_for_events();
    }
  }
  void wait_for_events();
  int time_left() const;
  void tick();

  void handle_event(int fd);
  void on_signal(int signal, pid_t sender);
  void end_job(int signal);
  void on_exec_error();
  void on_rank_end(size_t index);
  void reap();
  void watch_ranks(Time now);
  [[noreturn]] void abandon(int exit_code);

  void send(const Supervisor::Signals& signals);
  bool is_mute() const;
  void say(const std::string& text);
  void say_what_is_awaited(Time now);
  void say_who_waits(
      const std::map<std::string, std::vector<int>>& callers,
      const std::vector<int>& gone);
  void suspend();
  void resume();

  std::vector<int> ranks_of(std::vector<int> local_ranks) const;
  JobReport make_report();
  JobReport make_attempt_report();
  int exit_code(const JobReport& report) const;
  int failure_code(const JobReport& report) const;

  Job& job_;
  rlimit descriptor_limit_; // the ranks' limit; the agent's is higher
  FileDescriptor lifeline_;
  FileDescriptor signals_;
  FileDescriptor events_;
  OutputMultiplexer output_;
  Rendezvous rendezvous_;
  const Time started_ = Clock::now();

  // Of the current attempt:
  int number_ = 0;
  std::optional<Supervisor> supervisor_;
  std::unique_ptr<Attempt> attempt_;
  ProgressWatch progress_;
  bool told_waits_ = false; // reported ranks that wait for a rank that left
  std::vector<RankEnd> ends_; // by local rank
  std::string detail_; // details of the reason to stop
  int exec_error_ = 0;

  std::optional<Rendezvous::Command> command_; // to start, or to exit
  std::optional<Time> next_waiting_;
  bool reached_ = false; // the rendezvous
  EndRequests end_requests_;
  std::optional<int> exit_code_; // once the job has ended
  std::string reason_; // why the last ranks stopped; not yet reported
  bool told_ = false; // told other nodes of this attempt's failure
  bool paused_ = false; // all ranks are paused
  std::optional<Time> next_pause_look_; // during a requested pause
  Time pause_deadline_;

  bool output_done_ = false; // the last requested drain is done
  std::optional<Time> next_tick_;
  std::optional<Time> next_warning_;
  std::optional<Time> output_deadline_;
  std::optional<Time> suspended_;
  int64_t last_end_ns_ = 0;
};

/// The main function of the agent process.
[[noreturn]] void agent_main(Job& job, FileDescriptor lifeline);

} // namespace ddp
