#include <ddp/backends/shm/memory/heap.h>

#include <algorithm>
#include <iterator>

namespace ddp::backends::shm {

namespace {

int64_t rounded_up(int64_t bytes) {
  return (std::max<int64_t>(bytes, 1) + Heap::kAlignment - 1) /
      Heap::kAlignment * Heap::kAlignment;
}

} // namespace

Heap::Heap(int64_t begin, int64_t end) : free_{{begin, end - begin}} {}

std::optional<int64_t> Heap::take(int64_t bytes) {
  const auto length = rounded_up(bytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto piece =
      std::find_if(free_.begin(), free_.end(), [&](const auto& candidate) {
        return candidate.second >= length;
      });
  if (piece == free_.end()) {
    return std::nullopt;
  }
  const auto [place, available] = *piece;
  free_.erase(piece);
  if (available > length) {
    free_.insert({place + length, available - length});
  }
  taken_.insert({place, length});
  return place;
}

int64_t Heap::length(int64_t place) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return taken_.at(place);
}

void Heap::give_back(int64_t place) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto length = taken_.at(place);
  taken_.erase(place);
  const auto piece = free_.insert({place, length}).first;
  const auto next = std::next(piece);
  if (next != free_.end() && place + length == next->first) {
    piece->second += next->second;
    free_.erase(next);
  }
  if (piece != free_.begin()) {
    const auto previous = std::prev(piece);
    if (previous->first + previous->second == place) {
      previous->second += piece->second;
      free_.erase(piece);
    }
  }
}

} // namespace ddp::backends::shm
