#pragma once

#include <common/file_descriptor.h>

#include <csignal>
#include <optional>
#include <vector>

namespace ddp::detail {

/// While it lives, signals that would end this process are noted instead, where
/// the program has not said otherwise; and SIGCHLD is not ignored, which would
/// lose how children end. One at a time: handlers are the process's.
class PassedSignals {
 public:
  struct Signal {
    int number = 0;
    /// Came from the terminal, and so to the children as well.
    bool from_terminal = false;
  };

  PassedSignals();
  PassedSignals(const PassedSignals&) = delete;
  PassedSignals& operator=(const PassedSignals&) = delete;
  /// Puts back what there was, unless somebody else has been there since.
  ~PassedSignals();

  /// Readable when one has come.
  int descriptor() const {
    return pipe_.read_end.get();
  }

  /// The next that has come.
  std::optional<Signal> next() const;

 private:
  struct Changed {
    int number;
    struct sigaction before;
    struct sigaction ours;
  };

  void change(int number, const struct sigaction& ours);

  Pipe pipe_;
  std::vector<Changed> changed_;
};

} // namespace ddp::detail
