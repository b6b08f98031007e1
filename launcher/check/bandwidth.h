#pragma once

#include <string>
#include <vector>

namespace ddp {

/// The bandwidth of all-reduce between two nodes.
struct PairBandwidth {
  int first = 0; // rank
  int second = 0;
  double bits_per_second = 0;
};

/// What was measured, of all pairs (of few nodes) or of neighbours.
struct Bandwidths {
  const char* size = "4 MiB";
  std::string backend;
  std::vector<PairBandwidth> pairs; // rank 0 has all
};

/// Forms the job's group and lets pairs of ranks all-reduce 4 MiB, one pair
/// after another, for about two seconds. Collective. Throws where no group can
/// be formed, or it fails.
Bandwidths measure_bandwidths();

} // namespace ddp
