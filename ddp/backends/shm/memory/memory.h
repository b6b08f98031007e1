#pragma once

#include <common/file_descriptor.h>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

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

/// What lies at the beginning of each rank's memory, which all ranks map. New
/// memory is zeros, which are the initial values.
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

/// Hands out pieces of a range of bytes.
class Heap {
 public:
  Heap(int64_t begin, int64_t end);

  /// Where a free piece begins, a multiple of `kAlignment`; nothing if none is
  /// large enough.
  std::optional<int64_t> take(int64_t bytes);
  /// The bytes of a piece that was taken.
  int64_t length(int64_t place);
  void give_back(int64_t place);

  static constexpr int64_t kAlignment = 256;

 private:
  std::mutex mutex_;
  /// Begin and length.
  std::map<int64_t, int64_t> free_;
  std::map<int64_t, int64_t> taken_;
};

/// A rank's memory as one process sees it: control, slots, heap. It is as
/// large as the machine's memory may be, which costs nothing: pages come into
/// being as they are used.
class Mapping {
 public:
  /// Maps memory that a rank made. Throws `c10::Error` if it may shrink, by
  /// which its owner could end this process.
  explicit Mapping(int descriptor);
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  Control& control() const;
  char* slot(uint64_t number) const;
  /// What lies at a place of the heap.
  char* at(int64_t place) const {
    return begin_ + place;
  }
  /// The place of `bytes` at `data` in the heap; -1 if they lie elsewhere.
  int64_t place_of(const void* data, int64_t bytes) const;
  int64_t size() const {
    return size_;
  }

 private:
  int64_t size_ = 0;
  char* begin_ = nullptr;
};

/// This rank's own memory. Tensors keep it.
class Memory : public std::enable_shared_from_this<Memory> {
 public:
  /// For a group of so many ranks. Throws `c10::Error` if the system gives
  /// none.
  explicit Memory(int64_t ranks);

  int descriptor() const {
    return descriptor_.get();
  }
  const std::shared_ptr<const Mapping>& mapping() const {
    return mapping_;
  }

  /// A tensor in the heap, with one dimension, its pages taken now, by this
  /// thread, so that they lie on its NUMA node and cannot fail later. `options`
  /// are of the CPU. Throws `c10::OutOfMemoryError`.
  at::Tensor tensor(int64_t numel, const at::TensorOptions& options);

 private:
  void give_back(int64_t place);

  FileDescriptor descriptor_;
  std::shared_ptr<const Mapping> mapping_;
  Heap heap_;
};

} // namespace ddp::backends::shm
