#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

#include <common/file_descriptor.h>
#include <tests/launcher/words.h>
#include <tests/support/process.h>

namespace ddp::test {

using Clock = std::chrono::steady_clock;

/// The way in which a test starts ddprun.
struct JobSetup {
  Environment environment;
  std::string stdin_text = {};
  /// Whether ddprun's standard input, output and error are one terminal; else
  /// pipes.
  bool terminal = false;
  /// Runs in the child just before ddprun starts.
  std::function<void()> before_exec = {};
};

/// A ddprun under test. All processes of the job have a mark in their
/// environment, which identifies processes that outlive ddprun. Every wait has
/// a deadline, after which the calls throw.
class LaunchedJob {
 public:
  /// Starts `ddprun arguments...`.
  explicit LaunchedJob(
      const std::vector<std::string>& arguments,
      const JobSetup& setup = {});

  /// Kills all remaining processes.
  ~LaunchedJob();

  pid_t pid() const {
    return pid_;
  }
  pid_t agent() const;
  /// The process of the job's store, which exists once all ranks are started.
  pid_t store() const;

  /// The pid that the worker of this rank has printed.
  pid_t worker(int rank);

  void send(int signal) const;

  /// Reads until the output (or the terminal) contains this text `count` times.
  void wait_for_output(const std::string& text, int count = 1);

  /// Reads to the end and waits for ddprun. Returns ddprun's exit code, or
  /// -signal. Throws if a process of the job is left after five seconds.
  int wait();

  /// Sends a signal, then calls wait().
  int wait_after(int signal);

  /// Waits for ddprun without reading its output.
  int wait_unread();

  /// Whether all processes of the job end within five seconds.
  bool leaves_nothing() const;

  /// Waits until the pipe of ddprun's output is half full.
  void wait_until_half_full() const;

  void close_output();

  /// Types `text` at ddprun's terminal.
  void type(const std::string& text) const;

  const std::string& out() const {
    return out_;
  }
  const std::string& err() const {
    return err_;
  }

 private:
  bool read_some(Clock::time_point deadline);

  std::string mark_;
  pid_t pid_ = -1;
  FileDescriptor out_pipe_;
  FileDescriptor err_pipe_;
  std::string out_;
  std::string err_;
};

/// `ddprun OPTIONS sh -c SCRIPT`, with one thread for each rank.
inline LaunchedJob shell(
    const std::string& options,
    const std::string& script,
    const JobSetup& setup = {}) {
  auto line = words(options + " --env OMP_NUM_THREADS=1 sh -c");
  line.push_back(script);
  return LaunchedJob(line, setup);
}

/// Writes a shell script that can be executed.
void write_program(const std::string& path, const std::string& script);

/// Waits until this process is dead (a zombie counts); throws after 5 s.
void wait_for_death(pid_t pid);

/// Waits until this process is stopped ('T') or in another state of proc(5);
/// throws after 20 s.
void wait_for_state(pid_t pid, const std::string& states);

/// The parent of this process; 0 if there is none.
pid_t parent_of(pid_t pid);

} // namespace ddp::test
