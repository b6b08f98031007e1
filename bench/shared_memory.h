#pragma once

#include <ddp/process_group.h>

#include <atomic>
#include <cstddef>

namespace bench {

/// Memory that the ranks of one host share, all zero at first. Collective.
class SharedMemory {
 public:
  SharedMemory(const ddp::ProcessGroup& group, size_t bytes);
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  void* data() const {
    return data_;
  }

 private:
  size_t bytes_;
  void* data_;
};

/// Lets the ranks begin together, within less than a microsecond of each other,
/// where a barrier over gloo would let one go a tenth of a step ahead.
class StartLine {
 public:
  explicit StartLine(const ddp::ProcessGroup& group);

  /// Returns when all ranks have called it. Collective.
  void meet() const;

 private:
  int64_t ranks_;
  SharedMemory memory_;
  std::atomic<int64_t>& arrived_;
};

} // namespace bench
