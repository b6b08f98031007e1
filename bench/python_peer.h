#pragma once

#include <string>

#include <sys/types.h>

namespace bench {

/// Python doing the same, in a process of its own on this rank's CPU: the
/// interpreter that $DDP_PYTHON names, with python_peer.py. Between questions
/// it sleeps.
class PythonPeer {
 public:
  /// Whether $DDP_PYTHON names one.
  static bool available();

  PythonPeer();
  PythonPeer(const PythonPeer&) = delete;
  PythonPeer& operator=(const PythonPeer&) = delete;
  ~PythonPeer();

  /// Has it carry out a line; the seconds that it says this took. Throws
  /// `c10::Error` where it ends instead.
  double tell(const std::string& line) const;

 private:
  int socket_ = -1;
  pid_t pid_ = -1;
};

} // namespace bench
