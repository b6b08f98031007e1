#include <bench/paired.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace bench {
namespace {

constexpr int64_t kWarmUpRounds = 3;
constexpr int64_t kFewestRounds = 5;
constexpr int64_t kMostRounds = 1000;

} // namespace

Variant timed(const std::string& name, std::function<void()> function) {
  return {
      name, [function = std::move(function)] { return seconds_of(function); }};
}

void run_in_turns(
    std::vector<Variant>& variants,
    int64_t rounds,
    const std::function<void()>& barrier) {
  for (int64_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < variants.size(); ++i) {
      auto& variant =
          variants[(i + static_cast<size_t>(round)) % variants.size()];
      barrier();
      variant.seconds.push_back(variant.run());
    }
  }
}

void take_slowest(
    std::vector<Variant>& variants,
    const ddp::ProcessGroup& group) {
  for (auto& variant : variants) {
    auto seconds = at::tensor(variant.seconds, at::kDouble);
    group.all_reduce(seconds, ddp::ReduceOp::kMax);
    const auto* first = seconds.const_data_ptr<double>();
    variant.seconds.assign(first, first + seconds.numel());
  }
}

int64_t rounds_within(
    double seconds,
    std::vector<Variant>& variants,
    const std::function<void()>& barrier,
    const ddp::ProcessGroup& group) {
  run_in_turns(
      variants, kWarmUpRounds, barrier); // first steps are slower than others
  const double took =
      seconds_of([&] { run_in_turns(variants, 2, barrier); }) / 2;
  for (auto& variant : variants) {
    variant.seconds.clear();
  }
  auto rounds = at::tensor(static_cast<int64_t>(seconds / took));
  group.broadcast(rounds);
  return std::clamp(rounds.item<int64_t>(), kFewestRounds, kMostRounds);
}

nlohmann::json result_of(
    const std::string& name,
    const Variant& subject,
    const std::vector<Variant>& variants) {
  const auto time = quartiles(subject.seconds);
  nlohmann::json result{
      {"name", name},
      {"rounds", subject.seconds.size()},
      {"seconds", time.median},
      {"seconds_quartiles", {time.low, time.high}}};
  for (const auto& variant : variants) {
    std::vector<double> ratios(variant.seconds.size());
    for (size_t i = 0; i < ratios.size(); ++i) {
      ratios[i] = subject.seconds[i] / variant.seconds[i];
    }
    const auto ratio = quartiles(ratios);
    if (variant.name != subject.name) {
      result["ratio_" + variant.name] = ratio.median;
      result["ratio_" + variant.name + "_quartiles"] = {ratio.low, ratio.high};
    }
  }
  return result;
}

void print(const nlohmann::json& result) {
  std::printf("%s\n", result.dump().c_str());
  std::fflush(stdout);
}

double seconds_of(const std::function<void()>& function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - start;
  return took.count();
}

} // namespace bench
