#pragma once

#include <ddp/process_group.h>

#include <cstdint>

namespace ddp {

/// Seeds LibTorch's generators, CPU and CUDA, equally on all ranks with rank
/// 0's `seed` and returns it; then equal code builds equal weights everywhere.
/// Collective.
uint64_t manual_seed(uint64_t seed, const ProcessGroup& group);

} // namespace ddp
