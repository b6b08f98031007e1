#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <vector>

namespace ddp::detail {

/// The streams of a GPU that a bucket was filled on: backward runs each part
/// of a model on the stream that its forward used.
class ArrivalStreams {
 public:
  /// Adds the current stream of `device`. Nothing if that is the CPU.
  void add(c10::Device device);

  /// Makes the current stream of `device` wait for what the others have so
  /// far, and forgets them. Returns whether there was another.
  bool join(c10::Device device);

 private:
  std::vector<c10::Stream> streams_;
};

} // namespace ddp::detail
