#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <vector>

namespace ddp::detail {

/// The streams of a GPU on which a bucket was filled: backward runs each part
/// of a model on the stream of that part's forward pass.
class ArrivalStreams {
 public:
  /// Adds the current stream of `device`, which must not be the CPU.
  void add(c10::Device device);

  /// Makes the current stream of `device` wait for the current work of the
  /// other streams, and drops these streams. Returns whether another stream
  /// existed.
  bool join(c10::Device device);

 private:
  std::vector<c10::Stream> streams_;
};

} // namespace ddp::detail
