#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp::detail {

/// What a copy of a sampler draws in one loop, and how far it is.
struct SampleOrder {
  int64_t epoch = 0;
  /// How much of the epoch's sequence precedes it, on all ranks.
  size_t start = 0;
  size_t size = 0;
  /// The number of the loop among those of all copies.
  uint64_t loop = 0;
  /// Whether the next two were drawn.
  bool drawn = false;
  size_t first = 0;
  std::vector<size_t> indices; // empty where the sequence is undefined
  size_t position = 0;
};

} // namespace ddp::detail
