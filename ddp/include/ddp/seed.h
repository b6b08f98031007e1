#pragma once

#include <ddp/export.h>
#include <ddp/process_group.h>

#include <cstdint>

namespace ddp {

/// Seeds LibTorch's generators, CPU and CUDA, equally on all ranks with rank
/// 0's `seed` and returns it; then equal code builds equal weights everywhere.
/// Collective.
DDP_API uint64_t manual_seed(uint64_t seed, const ProcessGroup& group);

/// The same with a seed that rank 0 draws from the operating system; a warning
/// on rank 0 says which, so that the run can be repeated. Collective.
DDP_API uint64_t manual_seed(const ProcessGroup& group);

/// A seed for what is to differ over ranks, and to be the same in each run:
/// for a `std::mt19937` of the program's, say. With `m` a step of SplitMix64
/// (Steele, Lea and Flood: Fast splittable pseudorandom number generators,
/// 2014), `x = m(m(seed) ^ epoch)`, and numbers modulo 2^64, it has the upper
/// 32 bits of `m(x ^ rank)` and the lower ones of `x + 0x9e3779b1 * rank`:
/// those are all that some generators take (LibTorch's on the CPU), and differ
/// for all ranks of an epoch. Not collective.
DDP_API uint64_t rank_seed(uint64_t seed, int64_t epoch, int64_t rank);

/// Seeds LibTorch's generators with `rank_seed(seed, epoch, group.rank())`,
/// which it returns: from here on the ranks draw different numbers, for dropout
/// and augmentation. `manual_seed` leaves the ranks' generators equal, and
/// nothing else in this library makes them differ. Call it when the weights are
/// there, and again in each epoch, so that an epoch can be repeated by itself.
/// Not collective.
DDP_API uint64_t
seed_rank_streams(uint64_t seed, int64_t epoch, const ProcessGroup& group);

/// A seed for one sample of a dataset: `m(x ^ ~index)`, as in `rank_seed`. A
/// data loader's workers share LibTorch's generators in an order that differs
/// from run to run; a dataset that draws from a generator of its own, seeded by
/// this in `get(index)`, gives the same samples whatever the number of workers
/// and ranks. Not collective.
DDP_API uint64_t sample_seed(uint64_t seed, int64_t epoch, size_t index);

} // namespace ddp
