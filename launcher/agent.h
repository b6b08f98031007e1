#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include <sys/resource.h>
#include <sys/types.h>

#include <launcher/file_descriptor.h>
#include <launcher/job.h>
#include <launcher/output_pump.h>

namespace ddp {

/// The process that owns the ranks: starts them, carries their output, ends all
/// when one fails or a signal asks for it, and leaves no descendant behind. It
/// ends with the front: `lifeline` reads end-of-file when that dies.
class Agent {
 public:
  Agent(Job& job, FileDescriptor lifeline);

  /// Runs the job to its end. Returns the exit code: 0 where every rank exited
  /// with 0, else that of the first rank that failed, or 128 + s after signal
  /// s. Throws std::system_error where the ranks cannot be started. Exits
  /// instead of returning where the front dies, or where a reader that does not
  /// read holds up the last output of a job that was stopped.
  int run();

 private:
  using Clock = std::chrono::steady_clock;

  struct Worker {
    int rank = 0;
    pid_t pid = -1;
    FileDescriptor process; // a pidfd, where the kernel has them
    bool running = true;
  };

  void start_workers();
  Worker start_worker(int rank, int exec_error_fd, int null_fd);
  void watch(int fd);

  void wait_for_events();
  int time_left() const;
  void handle_event(int fd);
  void on_signal(int signal);
  void on_exec_error();
  void on_worker_end(Worker& worker);
  void reap();
  [[noreturn]] void abandon(int exit_code);

  void begin_stop(int exit_code, int signal);
  void on_deadline();
  void kill_workers();
  void signal_workers(int signal) const;
  int running() const;

  Job& job_;
  rlimit descriptor_limit_; // the ranks'; the agent's own is higher
  FileDescriptor lifeline_;
  FileDescriptor signals_;
  FileDescriptor events_;
  FileDescriptor exec_errors_;
  OutputPump output_;
  std::vector<Worker> workers_;
  Clock::time_point started_ = Clock::now();
  std::optional<Clock::time_point> deadline_; // of what we wait for
  std::optional<int> exit_code_; // set when the job begins to stop
  bool output_done_ = false;
};

/// The life of the agent process, from fork to exit.
[[noreturn]] void agent_main(Job& job, FileDescriptor lifeline);

} // namespace ddp
