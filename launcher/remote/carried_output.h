#pragma once

#include <string>
#include <utility>

#include <common/file_descriptor.h>

namespace ddp {

/// One of this process's own streams, written to without waiting for whoever
/// reads it.
class Outlet {
 public:
  explicit Outlet(int fd) : fd_(fd) {}

  int fd() const {
    return fd_;
  }
  void add(const std::string& text) {
    text_ += text;
  }
  bool has_text() const {
    return !text_.empty();
  }
  /// Whether it holds so much that no more should be read for it.
  bool is_full() const {
    return text_.size() > 1024 * 1024;
  }
  /// Writes as much as goes at once; call it when poll says that some does.
  void write_some();

 private:
  int fd_;
  std::string text_;
};

/// What one host's ddprun writes to one of its streams: goes on in whole
/// lines, so that those of different hosts do not mix.
class CarriedStream {
 public:
  CarriedStream(FileDescriptor source, Outlet* outlet)
      : source_(std::move(source)), outlet_(outlet) {}

  /// -1 once it has ended, or while the outlet is full.
  int fd_to_poll() const {
    return outlet_->is_full() ? -1 : source_.get();
  }
  /// Whether there was something.
  bool read_some();
  /// What is not passed on yet.
  std::string& held() {
    return held_;
  }
  const std::string& held() const {
    return held_;
  }
  /// Passes whole lines on; in the end the rest as well.
  void pass_on();

 private:
  FileDescriptor source_;
  Outlet* outlet_;
  std::string held_;
};

} // namespace ddp
