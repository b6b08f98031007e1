#pragma once

#include <cstdint>
#include <random>

namespace ddp::detail {

/// The next `randint(bound)` of numpy's `RandomState(seed)`, where `generator`
/// was seeded with `seed`: 32 bits at a time, masked, until they are less than
/// `bound`, from 1 on. Source: numpy/random/src/distributions/distributions.c.
inline uint32_t numpy_randint(std::mt19937& generator, uint32_t bound) {
  uint32_t mask = bound - 1;
  for (int shift = 1; shift < 32; shift *= 2) {
    mask |= mask >> shift;
  }
  while (true) {
    const auto value = static_cast<uint32_t>(generator()) & mask;
    if (value < bound) {
      return value;
    }
  }
}

} // namespace ddp::detail
