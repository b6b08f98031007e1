#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp::detail {

/// The samples that a copy of a sampler draws in one loop, and the loop's
/// progress.
struct SampleOrder {
  int64_t epoch = 0;
  /// The position in the epoch's sequence, over all ranks, at which the loop
  /// began.
  size_t start = 0;
  size_t size = 0;
  /// The number of this loop among the loops of all copies.
  uint64_t loop = 0;
  /// Whether `first` and `indices` have been drawn.
  bool drawn = false;
  size_t first = 0;
  std::vector<size_t> indices; // empty if the sequence is undefined
  size_t position = 0;
};

} // namespace ddp::detail
