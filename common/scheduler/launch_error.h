#pragma once

#include <stdexcept>
#include <string>

namespace ddp {

/// Exit codes that ddprun chooses itself; a failed rank's code is passed on as
/// it is, and 128 + s stands for signal s (the shell's conventions).
constexpr int kExitUsage = 2;
/// The job's surroundings failed, not the job: worth another try.
constexpr int kExitInfrastructure = 75;
/// No progress, or not started in time.
constexpr int kExitTimeout = 124;
constexpr int kExitInternal = 125;
constexpr int kExitNotExecutable = 126;
constexpr int kExitNotFound = 127;
constexpr int kExitSignalBase = 128;

/// A reason not to start, or not to continue with, the job: one line for the
/// user and the code that ddprun exits with.
class LaunchError : public std::runtime_error {
 public:
  LaunchError(int exit_code, const std::string& message)
      : std::runtime_error(message), exit_code_(exit_code) {}

  int exit_code() const {
    return exit_code_;
  }

 private:
  int exit_code_;
};

} // namespace ddp
