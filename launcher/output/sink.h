#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <common/file_descriptor.h>

namespace ddp {

/// Text on its way to a descriptor that others share. Writes without waiting
/// where that is possible without changing the descriptor for its other users:
/// terminals and pipes are opened once more, sockets asked not to wait. Regular
/// files, and what cannot be opened again, are waited for. For one thread.
class Sink {
 public:
  using Clock = std::chrono::steady_clock;

  Sink() = default; // takes nothing

  /// `fd` has to outlive the sink.
  explicit Sink(int fd);

  void append(std::string_view text);

  /// Writes what can be written now. Returns 0 or the errno that ends this: the
  /// sink then drops all it is given.
  int write();

  /// Bytes not yet written.
  size_t waiting() const {
    return text_.size() - done_;
  }

  /// What to wait for, writable, before write() is called again; -1 where
  /// nothing waits.
  int blocked_fd() const {
    return blocked_ ? fd_ : -1;
  }

  /// When the descriptor last took something, or began to be waited for.
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
  bool blocked_ = false;
  std::string text_;
  size_t done_ = 0; // of text_
  Clock::time_point last_taken_;
};

} // namespace ddp
