#pragma once

#include <string>
#include <vector>

namespace ddp {

/// Set to 1 for a ddprun that another one starts on its host. Its standard
/// input is then a line to the starter: after the secret (--token -) lines
/// "signal N", and its end means that the starter has gone.
constexpr const char* kStarterVariable = "DDP_STARTER";

/// What such a ddprun prints first, and last: without these, what the starter
/// hears, and the exit code, are the remote shell's.
constexpr const char* kStartedMark = "\1ddprun begins\n";
constexpr const char* kFinishedMark = "\1ddprun ends\n";

/// The secret, which comes first on standard input: its first line. What
/// follows is left there.
std::string read_first_line();

/// The rest of that line to the starter.
class StarterLink {
 public:
  /// For a ddprun without starter it never says anything.
  explicit StarterLink(bool has_starter) : fd_(has_starter ? 0 : -1) {}

  /// Becomes readable when there is something to take; -1 for never.
  int fd() const {
    return fd_;
  }
  /// The signals that the starter passes on; in the end SIGTERM.
  std::vector<int> take_signals();

 private:
  int fd_;
  std::string text_;
};

} // namespace ddp
