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

/// The memory for data in transit. While a rank writes to one slot, other ranks
/// may use the other.
constexpr size_t kSlotBytes = size_t(1) << 20;
constexpr int kSlots = 2;

static_assert(
    std::atomic<uint32_t>::is_always_lock_free,
    "atomics in shared memory must be lock-free");

/// A counter that other ranks wait for.
struct alignas(64) Counter {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> sleepers;
};

/// The parameters of a rank's next collective.
struct CallHeader {
  c10d::OpType type;
  int8_t dtype;
  /// The reduction's value in c10d, or 0.
  uint8_t reduction;
  int32_t root;
  /// The number of elements; -1 if the number may differ between ranks.
  int64_t count;
  /// The tensor's offset in the rank's heap; -1 if the tensor is elsewhere.
  int64_t offset;
  /// Whether all ranks receive the same bytes.
  bool same_for_all;
  /// The number of bytes for each rank.
  int64_t lengths[kMaxRanks];
};

/// The header of each rank's memory, which all ranks map. New memory is zero,
/// which is the initial value of each field.
struct Control {
  /// The number of steps of collectives that the rank has done.
  Counter steps;
  alignas(64) std::atomic<uint32_t> failed;
  /// Set when the rank has destroyed the group and does no more steps.
  std::atomic<uint32_t> left;
  /// The reason, null-terminated; valid if `failed` is set.
  char failure[1024];
  /// The newest header, and the previous header, which other ranks may still
  /// read.
  CallHeader headers[2];
};

/// Allocates pieces from a range of bytes.
class Heap {
 public:
  Heap(int64_t begin, int64_t end);

  /// Allocates a piece. Returns the piece's offset, a multiple of `kAlignment`,
  /// or `std::nullopt` if no free piece is large enough.
  std::optional<int64_t> take(int64_t bytes);
  /// The size of an allocated piece in bytes.
  int64_t length(int64_t offset);
  void give_back(int64_t offset);

  static constexpr int64_t kAlignment = 256;

 private:
  std::mutex mutex_;
  /// Offset and length of each free piece.
  std::map<int64_t, int64_t> free_;
  std::map<int64_t, int64_t> taken_;
};

/// A rank's memory as mapped by one process: control, slots, heap. The mapping
/// is as large as the machine's memory; pages are allocated only when they are
/// used.
class Mapping {
 public:
  /// Maps the memory of a rank. Throws `c10::Error` if the memory could shrink,
  /// since the owner could then crash this process.
  explicit Mapping(int descriptor);
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  Control& control() const;
  char* slot(uint64_t number) const;
  /// The address of an offset in the heap.
  char* at(int64_t offset) const {
    return begin_ + offset;
  }
  /// The offset in the heap of the `bytes` bytes at `data`; -1 if the bytes are
  /// outside the heap.
  int64_t offset_of(const void* data, int64_t bytes) const;
  int64_t size() const {
    return size_;
  }

 private:
  int64_t size_ = 0;
  char* begin_ = nullptr;
};

/// The memory of this rank. Tensors in this memory keep it alive.
class Memory : public std::enable_shared_from_this<Memory> {
 public:
  /// Allocates memory for a group of `ranks` ranks. Throws `c10::Error` if the
  /// system cannot provide the memory.
  explicit Memory(int64_t ranks);

  int descriptor() const {
    return descriptor_.get();
  }
  const std::shared_ptr<const Mapping>& mapping() const {
    return mapping_;
  }

  /// Allocates a tensor with one dimension in the heap. The calling thread
  /// touches the tensor's pages now, so that they are on the thread's NUMA node
  /// and a later access cannot fail. `options` must be for the CPU. Throws
  /// `c10::OutOfMemoryError`.
  at::Tensor tensor(int64_t numel, const at::TensorOptions& options);

 private:
  void give_back(int64_t offset);

  FileDescriptor descriptor_;
  std::shared_ptr<const Mapping> mapping_;
  Heap heap_;
};

} // namespace ddp::backends::shm
