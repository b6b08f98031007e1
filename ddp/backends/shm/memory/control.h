#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

// What lies at the beginning of each rank's memory, which all ranks map. New
// memory is zeros, which are the initial values.

namespace ddp::backends::shm {

constexpr int kMaxRanks = 512;

/// The memory for data that is on its way. A rank that writes into one slot has
/// up to two more to be read by others.
constexpr size_t kSlotBytes = size_t(1) << 20;
constexpr int kSlots = 3;

static_assert(
    std::atomic<uint32_t>::is_always_lock_free,
    "atomics must work between processes");

/// A number that others wait for.
struct alignas(64) Counter {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> sleepers;
};

/// What a rank is about to do in a collective.
struct Announcement {
  c10d::OpType type;
  int8_t dtype;
  /// c10d's number of the reduction, or 0.
  uint8_t reduction;
  int32_t root;
  /// Elements; -1 where ranks may have different numbers.
  int64_t count;
  /// Where the tensor lies in the rank's heap; -1 if elsewhere.
  int64_t place;
  /// Whether each rank gets the same bytes.
  bool same_for_all;
  /// The bytes for each rank.
  int64_t lengths[kMaxRanks];
};

struct Control {
  /// How many steps of collectives the rank has done.
  Counter steps;
  alignas(64) std::atomic<uint32_t> failed;
  /// The rank has destroyed the group, and does no more steps.
  std::atomic<uint32_t> left;
  /// Why, ending with a zero. To be read if `failed`.
  char failure[1024];
  /// The newest, and the one before it, which others may still read.
  Announcement announcements[2];
};

} // namespace ddp::backends::shm
