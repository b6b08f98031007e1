#include <ddp/random.h>

#include <ddp/failure/heartbeat.h>

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <random>

namespace ddp {
namespace {

uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

uint64_t derive(uint64_t seed, int64_t epoch) {
  return mix(mix(seed) ^ static_cast<uint64_t>(epoch));
}

} // namespace

uint64_t manual_seed(uint64_t seed, const ProcessGroup& group) {
  const detail::heartbeat::Activity activity("manual_seed");
  auto agreed = at::scalar_tensor(static_cast<int64_t>(seed), at::kLong);
  group.broadcast(agreed);
  seed = static_cast<uint64_t>(agreed.item<int64_t>());
  at::manual_seed(seed);
  return seed;
}

uint64_t manual_seed(const ProcessGroup& group) {
  std::random_device device;
  const auto own = (static_cast<uint64_t>(device()) << 32) | device();
  const auto seed = manual_seed(own, group);
  if (group.rank() == 0) {
    TORCH_WARN("ddp: the seed of this run is ", seed);
  }
  return seed;
}

uint64_t rank_seed(uint64_t seed, int64_t epoch, int64_t rank) {
  const auto base = derive(seed, epoch);
  const auto which = static_cast<uint64_t>(rank);
  constexpr uint64_t kOdd = 0x9e3779b1;
  const uint64_t low = (base + kOdd * which) & 0xffffffff;
  return (mix(base ^ which) & ~uint64_t(0xffffffff)) | low;
}

uint64_t seed_rank_streams(
    uint64_t seed,
    int64_t epoch,
    const ProcessGroup& group) {
  const auto own = rank_seed(seed, epoch, group.rank());
  at::manual_seed(own);
  return own;
}

uint64_t sample_seed(uint64_t seed, int64_t epoch, size_t index) {
  return mix(derive(seed, epoch) ^ ~static_cast<uint64_t>(index));
}

} // namespace ddp
