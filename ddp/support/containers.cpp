#include <ddp/support/containers.h>

#include <algorithm>

namespace ddp::detail {

// A c10::Dict doubles its slots until no key is further from its place than the
// number of bits of a slot's index.
uint64_t dict_slots(const std::vector<c10::IValue>& keys) {
  constexpr uint64_t kGoldenRatio = 11400714819323198485U; // as in c10::Dict
  constexpr int kMinBits = 2;
  constexpr int kMaxBits = 40; // more than any memory
  std::vector<uint64_t> places;
  for (const auto& key : keys) {
    places.push_back(kGoldenRatio * c10::detail::DictKeyHash()(key));
  }
  std::sort(places.begin(), places.end());
  for (int bits = kMinBits; bits < kMaxBits; ++bits) {
    const uint64_t slots = uint64_t{1} << bits;
    const auto reach = static_cast<uint64_t>(std::max(bits, 4));
    uint64_t next = 0;
    uint64_t furthest = 0;
    for (const auto place : places) {
      const auto wanted = place >> (64 - bits);
      next = std::max(next, wanted);
      furthest = std::max(furthest, next - wanted);
      ++next;
    }
    if (furthest < reach && slots >= 2 * keys.size()) {
      return slots;
    }
  }
  return uint64_t{1} << kMaxBits;
}

} // namespace ddp::detail
