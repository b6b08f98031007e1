#pragma once

#include <string>
#include <vector>

namespace ddp {

// The standard input of a ddprun that another one starts is a line to the
// starter: a number of the starter's that no rank knows, the secret (--token
// -), lines "signal N", and its end means that the starter has gone.

/// What such a ddprun prints first, and last: without these, what the starter
/// hears, and the exit code, are the remote shell's. They have the starter's
/// number, or a rank could print them.
std::string started_mark(const std::string& number);
std::string finished_mark(const std::string& number);

/// The next line of a descriptor; what follows is left there.
std::string read_first_line(int fd);

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
