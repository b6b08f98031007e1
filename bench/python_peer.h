#pragma once

#include <optional>
#include <string>

#include <sys/types.h>

namespace bench {

/// A Python process on this rank's CPU, which runs PYTHON_PEER_PATH with the
/// interpreter $DDP_PYTHON. The process sleeps between commands.
class PythonPeer {
 public:
  /// Whether $DDP_PYTHON is set.
  static bool available();

  /// Starts the peer, or prints that $DDP_PYTHON is not set.
  static void start(std::optional<PythonPeer>& peer);

  PythonPeer();
  PythonPeer(const PythonPeer&) = delete;
  PythonPeer& operator=(const PythonPeer&) = delete;
  ~PythonPeer();

  /// Sends a command line, and returns the seconds that the peer reports.
  /// Throws `c10::Error` if the peer ends.
  double tell(const std::string& line) const;

 private:
  int socket_ = -1;
  pid_t pid_ = -1;
};

} // namespace bench
