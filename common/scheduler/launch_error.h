#pragma once

#include <stdexcept>
#include <string>

namespace ddp {

/// Exit codes of ddprun itself. ddprun returns a failed rank's code unchanged;
/// 128 + s means signal s, as in the shell.
constexpr int kExitUsage = 2;
/// The infrastructure failed, not the job; a retry may succeed.
constexpr int kExitInfrastructure = 75;
/// The job made no progress, or did not start in time.
constexpr int kExitTimeout = 124;
constexpr int kExitInternal = 125;
constexpr int kExitNotExecutable = 126;
constexpr int kExitNotFound = 127;
constexpr int kExitSignalBase = 128;

/// The reason why the job cannot start or continue: one line for the user, and
/// the exit code of ddprun.
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
