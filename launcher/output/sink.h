#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <common/file_descriptor.h>

namespace ddp {

/// Buffered output to a descriptor that other processes share. Writes do not
/// block if this is possible without changing the descriptor for its other
/// users: terminals and pipes are reopened, sockets get MSG_DONTWAIT, and what
/// fits goes into pipes that cannot be reopened, such as another user's. Writes
/// to regular files, and to terminals that cannot be reopened, block. Not
/// thread-safe.
class Sink {
 public:
  using Clock = std::chrono::steady_clock;

  Sink() = default; // accepts nothing

  /// `fd` must outlive the sink.
  explicit Sink(int fd);

  void append(std::string_view text);

  /// Writes as much as possible without waiting. Returns 0 or the errno of a
  /// failure, after which the sink drops all text. If the writes block, the
  /// sink drops only this text, and a notice precedes later text; then only the
  /// first failure is returned.
  int write();

  /// Bytes not yet written.
  size_t waiting() const {
    return text_.size() - done_;
  }

  /// The descriptor that must become writable before write() is called again;
  /// -1 if none.
  int blocked_fd() const {
    return blocked_ ? fd_ : -1;
  }

  /// The time at which the descriptor last accepted bytes, or at which waiting
  /// for it began.
  Clock::time_point last_taken() const {
    return last_taken_;
  }

 private:
  ssize_t write_some();
  void took(size_t size);

  int fd_ = -1;
  FileDescriptor own_;
  bool waits_ = false; // write_all()
  bool socket_ = false;
  bool pipe_ = false; // that is not reopened
  bool blocked_ = false;
  bool failed_ = false; // although it waits
  std::string gap_; // the notice of dropped text
  std::string text_;
  size_t done_ = 0; // of text_
  Clock::time_point last_taken_;
};

/// The message about standard `stream` if its sink failed by `error`.
std::string dropped_output(const std::string& stream, int error);

} // namespace ddp
