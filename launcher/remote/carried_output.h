#pragma once

#include <string>
#include <utility>

#include <common/file_descriptor.h>
#include <launcher/output/sink.h>

namespace ddp {

/// What one host's ddprun writes to one of its streams: goes on in whole
/// lines, so that those of different hosts do not mix.
class CarriedStream {
 public:
  CarriedStream(FileDescriptor source, Sink* sink)
      : source_(std::move(source)), sink_(sink) {}

  /// -1 once it has ended, or while the sink has much to write.
  int fd_to_poll() const {
    return sink_->waiting() > kMostWaiting ? -1 : source_.get();
  }
  /// Whether there was something.
  bool read_some();
  /// What is not passed on yet.
  const std::string& held() const {
    return held_;
  }
  /// Whether it has that in it; it is not passed on.
  bool take(const std::string& mark);
  /// Passes whole lines on; in the end the rest as well.
  void pass_on();

 private:
  static constexpr size_t kMostWaiting = 1024 * 1024;

  FileDescriptor source_;
  Sink* sink_;
  std::string held_;
};

} // namespace ddp
