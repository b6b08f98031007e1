#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace ddp::backends::shm {

/// Hands out pieces of a range of bytes.
class Heap {
 public:
  Heap(int64_t begin, int64_t end);

  /// Where a free piece begins, a multiple of `kAlignment`; nothing where none
  /// is large enough.
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

} // namespace ddp::backends::shm
