#pragma once

#include <chrono>

namespace ddp::backends {

/// For messages.
inline double seconds(std::chrono::milliseconds time) {
  return static_cast<double>(time.count()) / 1000.0;
}

} // namespace ddp::backends
