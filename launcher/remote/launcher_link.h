#pragma once

#include <string>
#include <vector>

namespace ddp {

// The standard input of a ddprun that another one starts is a line to the
// remote launcher: a number of the remote launcher's that no rank knows, the
// secret (--token
// -), lines "signal N", and its end means that the remote launcher has gone.

/// What such a ddprun prints first, and last: without these, what the remote
/// launcher hears, and the exit code, are the remote shell's. They have the
/// remote launcher's number, or a rank could print them.
std::string started_mark(const std::string& number);
std::string finished_mark(const std::string& number);

/// The next line of a descriptor; what follows is left there.
std::string read_first_line(int fd);

/// The rest of that line to the remote launcher.
class LauncherLink {
 public:
  /// For a ddprun without remote launcher it never says anything.
  explicit LauncherLink(bool has_remote_launcher)
      : fd_(has_remote_launcher ? 0 : -1) {}

  /// Becomes readable when there is something to take; -1 for never.
  int fd() const {
    return fd_;
  }
  /// The signals that the remote launcher passes on; in the end SIGTERM.
  std::vector<int> take_signals();

 private:
  int fd_;
  std::string text_;
};

} // namespace ddp
