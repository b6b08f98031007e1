#pragma once

#include <common/file_descriptor.h>

#include <csignal>
#include <map>

namespace ddp::detail {

/// While it lives, signals that would end this process are noted instead, where
/// the program has not said otherwise; and SIGCHLD is not ignored, which would
/// lose how children end. One at a time: handlers are the process's.
class PassedSignals {
 public:
  PassedSignals();
  PassedSignals(const PassedSignals&) = delete;
  PassedSignals& operator=(const PassedSignals&) = delete;
  /// Puts back what there was, unless somebody else has been there since.
  ~PassedSignals();

  /// Readable when one has come.
  int descriptor() const {
    return pipe_.read_end.get();
  }

  /// The number of the next that has come, negative where it came from the
  /// terminal, and so to the children as well; 0 for none.
  int next() const;

 private:
  Pipe pipe_;
  std::map<int, struct sigaction> before_;
};

} // namespace ddp::detail
