#pragma once

#include <string>
#include <vector>

namespace ddp {

// A ddprun that was started by a remote launcher reads the following from
// standard input: a random number, which is hidden from ranks; the secret
// (--token -); and lines of the form "signal N". End-of-file means that the
// remote launcher has ended.

/// The first and the last line that a remotely launched ddprun prints. Without
/// these lines, the output and the exit code are those of the remote shell. The
/// lines contain the remote launcher's random number, so that no rank can print
/// them.
std::string started_mark(const std::string& number);
std::string finished_mark(const std::string& number);

/// Reads the next line from a descriptor, and nothing after it.
std::string read_first_line(int fd);

/// The rest of the connection to the remote launcher, after the first lines.
class LauncherLink {
 public:
  /// Without a remote launcher, no signal ever arrives.
  explicit LauncherLink(bool has_remote_launcher)
      : fd_(has_remote_launcher ? 0 : -1) {}

  /// Becomes readable when take_signals() can read; -1 for never.
  int fd() const {
    return fd_;
  }
  /// The signals that the remote launcher forwards; SIGTERM at end-of-file.
  std::vector<int> take_signals();

 private:
  int fd_;
  std::string text_;
};

} // namespace ddp
