#include <launcher/check/bandwidth.h>

#include <algorithm>
#include <chrono>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include <ddp/ddp.h>

namespace ddp {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr int64_t kFloats = 1024 * 1024; // 4 MiB
constexpr double kSeconds = 2; // for all pairs
constexpr std::chrono::seconds kTimeout(30);

std::vector<std::pair<int, int>> pairs_of(int nodes) {
  constexpr int few = 8;
  std::vector<std::pair<int, int>> pairs;
  for (int i = 0; i < nodes; ++i) {
    for (int j = i + 1; j < (nodes > few ? std::min(i + 2, nodes) : nodes);
         ++j) {
      pairs.emplace_back(i, j);
    }
  }
  return pairs;
}

double seconds_for(
    const ProcessGroup& pair,
    const at::Tensor& tensor,
    int64_t times) {
  pair.barrier();
  const auto begin = Clock::now();
  for (int64_t i = 0; i < times; ++i) {
    pair.all_reduce(tensor);
  }
  tensor[0].item<float>(); // waits for a GPU
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// In bits per second: of two ranks each sends the whole tensor once.
double measure(const ProcessGroup& pair, double budget) {
  const at::Tensor tensor =
      at::zeros({kFloats}, at::TensorOptions().device(pair.device()));
  seconds_for(pair, tensor, 1); // connects
  const double once = seconds_for(pair, tensor, 1);
  at::Tensor times = at::full(
      {1},
      std::clamp(budget / std::max(once, 1e-6), 1.0, 100.0),
      at::TensorOptions().device(pair.device()));
  pair.all_reduce(times, ReduceOp::kMin);
  const auto count = static_cast<int64_t>(times.item<float>());
  const double seconds = seconds_for(pair, tensor, count);
  return static_cast<double>(count * kFloats * 4 * 8) / seconds;
}

} // namespace

Bandwidths measure_bandwidths() {
  const ProcessGroup group =
      init_process_group(ProcessGroupOptions().timeout(kTimeout));
  const auto nodes = static_cast<int>(group.size());
  const auto rank = static_cast<int>(group.rank());
  const auto pairs = pairs_of(nodes);
  json own = json::array();
  for (const auto& [first, second] : pairs) {
    const bool takes_part = rank == first || rank == second;
    const ProcessGroup pair = group.split(takes_part ? 0 : -1);
    if (takes_part) {
      const double found =
          measure(pair, kSeconds / static_cast<double>(pairs.size()));
      if (rank == first) {
        own.push_back({first, second, found});
      }
    }
    group.barrier(); // or pairs would slow each other down
  }
  Bandwidths result;
  result.backend = group.backend();
  for (const std::string& text : group.all_gather(own.dump())) {
    for (const json& each : json::parse(text)) {
      result.pairs.push_back({each[0], each[1], each[2]});
    }
  }
  return result;
}

} // namespace ddp
