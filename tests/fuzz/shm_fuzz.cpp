// The header of another rank's call. Ranks of a group trust each other's
// offsets and lengths, as they do each other's data: see docs/architecture.md.
#include <ATen/ops/ones.h>
#include <ddp/backends/shm/all_reduce.h>
#include <ddp/backends/shm/exchange.h>
#include <ddp/internal/check.h>

#include <algorithm>
#include <cstring>

using namespace ddp::backends::shm;

static CallHeader header_in(const uint8_t* data, size_t size) {
  CallHeader header{};
  std::memcpy(
      static_cast<void*>(&header), data, std::min(size, sizeof(header)));
  const auto* flag = reinterpret_cast<const uint8_t*>(&header.same_for_all);
  header.same_for_all = *flag % 2 == 1;
  header.offset = -1;
  for (auto& length : header.lengths) {
    length = std::clamp<int64_t>(length, 0, int64_t(1) << 40);
  }
  return header;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto own = std::make_shared<Memory>(2);
  static const auto other = std::make_shared<Memory>(2);
  if (size == 0) {
    return 0;
  }
  auto& control = other->mapping()->control();
  own->mapping()->control().steps.value = 0;
  control.steps.value = 1 << 20; // it is ahead
  control.headers[0] = control.headers[1] = header_in(data + 1, size - 1);
  std::vector<Peer> peers(2);
  peers[0].memory = own->mapping();
  peers[1].memory = other->mapping();
  Context context(0, std::move(peers));
  const auto sum = at::ones({64});
  const auto part = at::ones({4});
  AllReduce reduce(context, sum, c10d::ReduceOp::SUM);
  const ExchangeKind kind{c10d::OpType::ALLGATHER, c10::kFloat};
  Exchange gather(context, kind, {part}, {at::ones({4}), at::ones({4})});
  Collective& collective =
      *data % 2 ? static_cast<Collective&>(reduce) : gather;
  try {
    for (int step = 0; step < 8 && collective.step(); ++step) {
      context.finish_step();
    }
  } catch (const c10::Error&) {
  }
  return 0;
}
