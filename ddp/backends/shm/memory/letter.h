#pragma once

#include <atomic>
#include <cstdint>

namespace ddp::backends::shm {

/// The beginning of a message in its sender's heap; the bytes follow it.
struct alignas(64) Letter {
  /// Where the next one to the same rank lies, once there is one.
  std::atomic<uint64_t> next;
  int64_t bytes;
  int32_t tag;
  /// The receiver has copied it, and has gone on to the next.
  std::atomic<uint32_t> taken;
  std::atomic<uint32_t> passed;
};

} // namespace ddp::backends::shm
