#include <ddp/seed.h>

#include <ATen/ATen.h>
#include <ATen/Context.h>

namespace ddp {

uint64_t manual_seed(uint64_t seed, const ProcessGroup& group) {
  auto agreed = at::scalar_tensor(static_cast<int64_t>(seed), at::kLong);
  group.broadcast(agreed);
  seed = static_cast<uint64_t>(agreed.item<int64_t>());
  at::manual_seed(seed);
  return seed;
}

} // namespace ddp
