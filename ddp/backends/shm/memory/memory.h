#pragma once

#include <ATen/core/Tensor.h>
#include <common/file_descriptor.h>
#include <ddp/backends/shm/memory/control.h>
#include <ddp/backends/shm/memory/heap.h>

#include <memory>

namespace ddp::backends::shm {

/// A rank's memory as one process sees it: control, slots, heap. It is as
/// large as the machine's memory may be, which costs nothing: pages come into
/// being as they are used.
class Mapping {
 public:
  /// Maps memory that a rank made. Throws `c10::Error` where it may shrink, by
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
  /// For a group of so many ranks. Throws `c10::Error` where the system gives
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
