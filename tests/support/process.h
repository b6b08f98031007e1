#pragma once

#include <common/file_descriptor.h>
#include <tests/support/temporary_folder.h>

#include <chrono>
#include <functional>
#include <map>
#include <vector>

namespace ddp::test {

inline constexpr std::chrono::seconds kLong(60);

using Environment = std::map<std::string, std::string>;

/// A variable of this process's environment; empty if the variable is not set.
std::string variable(const char* name);

/// The number in this variable; `usual` if the variable is not set.
int variable(const char* name, int usual);

/// The path of a program of tests/programs.
std::string program(const std::string& name);

/// A program to run, with variables set (or, if empty, unset) in addition to
/// this process's environment.
struct Command {
  std::vector<std::string> arguments;
  Environment environment;
};

/// Sets variables of this process (or, if empty, unsets them).
void set_variables(const Environment& environment);

/// Gives up the rights of root, for good. Returns false if this process may
/// not, or does not reach `folder` without them.
bool becomes_user(const std::string& folder);

/// The children that the main thread of this process has started.
std::vector<pid_t> children_of(pid_t pid);

/// Replaces this program by the command, or exits with 127.
[[noreturn]] void become(const Command& command);

/// How a program ended.
struct Outcome {
  /// The exit code, or 128 + signal.
  int exit_code = -1;
  /// The program's output to stdout and stderr.
  std::string output;
  /// Whether the deadline passed; the program then gets SIGABRT, and SIGKILL.
  bool hung = false;
  std::chrono::duration<double> seconds{};
};

/// A running program in a separate process group. Timeouts are multiplied by
/// DDP_TEST_TIMEOUT_FACTOR, if that variable is set.
class Process {
 public:
  explicit Process(const Command& command);
  /// Runs `body` in a fork of this program; the result of `body` is the exit
  /// code.
  explicit Process(const std::function<int()>& body);
  Process(Process&&) noexcept;
  Process& operator=(Process&&) = delete;
  /// Kills the program, if it still runs.
  ~Process();

  pid_t pid() const {
    return pid_;
  }
  void signal(int number) const;
  bool has_ended() const;

  /// Waits until `text` is in the output. Returns false if the program ends or
  /// `timeout` passes first.
  bool wait_for(const std::string& text, std::chrono::seconds timeout);

  /// Waits for the program's end.
  Outcome finish(std::chrono::seconds timeout);

 private:
  /// Kills the program and its children.
  void kill_all() const;

  /// Ends the program after a deadline: first so that it reports where it
  /// hangs, then with its children. Throws if the program still runs after
  /// both.
  void interrupt(bool again, bool killed) const;

  /// Waits for output for at most `patience` and reads it; returns false at its
  /// end.
  bool read_some(std::chrono::milliseconds patience);

  pid_t pid_ = -1;
  FileDescriptor output_;
  std::string text_;
  std::chrono::steady_clock::time_point start_;
};

/// Waits for all processes.
std::vector<Outcome> finish(
    std::vector<Process>& processes,
    std::chrono::seconds timeout);

/// Runs all commands concurrently, and waits for all of them.
std::vector<Outcome> run(
    const std::vector<Command>& commands,
    std::chrono::seconds timeout);

Outcome run(const Command& command, std::chrono::seconds timeout);

} // namespace ddp::test
