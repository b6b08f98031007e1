#include <bench/paired.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>

namespace bench {
namespace {

constexpr int64_t kWarmUpRounds = 3;
constexpr int64_t kFewestRounds = 5;
constexpr int64_t kMostRounds = 1000;

} // namespace

void run_in_turns(
    std::vector<Way>& ways,
    int64_t rounds,
    const std::function<void()>& meet) {
  for (int64_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < ways.size(); ++i) {
      auto& way = ways[(i + static_cast<size_t>(round)) % ways.size()];
      meet();
      way.seconds.push_back(way.run());
    }
  }
}

void take_slowest(std::vector<Way>& ways, const ddp::ProcessGroup& group) {
  for (auto& way : ways) {
    auto seconds = at::tensor(way.seconds, at::kDouble);
    group.all_reduce(seconds, ddp::ReduceOp::kMax);
    const auto* first = seconds.const_data_ptr<double>();
    way.seconds.assign(first, first + seconds.numel());
  }
}

int64_t rounds_within(
    double seconds,
    std::vector<Way>& ways,
    const std::function<void()>& meet,
    const ddp::ProcessGroup& group) {
  run_in_turns(ways, kWarmUpRounds, meet); // first steps are slower than others
  const double took = seconds_of([&] { run_in_turns(ways, 2, meet); }) / 2;
  for (auto& way : ways) {
    way.seconds.clear();
  }
  auto rounds = at::tensor(static_cast<int64_t>(seconds / took));
  group.broadcast(rounds);
  return std::clamp(rounds.item<int64_t>(), kFewestRounds, kMostRounds);
}

nlohmann::json result_of(
    const std::string& name,
    const Way& subject,
    const std::vector<Way>& ways) {
  const auto time = quartiles(subject.seconds);
  nlohmann::json result{
      {"name", name},
      {"rounds", subject.seconds.size()},
      {"seconds", time.median},
      {"seconds_quartiles", {time.low, time.high}}};
  for (const auto& way : ways) {
    std::vector<double> ratios(way.seconds.size());
    for (size_t i = 0; i < ratios.size(); ++i) {
      ratios[i] = subject.seconds[i] / way.seconds[i];
    }
    const auto ratio = quartiles(ratios);
    if (way.name != subject.name) {
      result["ratio_" + way.name] = ratio.median;
      result["ratio_" + way.name + "_quartiles"] = {ratio.low, ratio.high};
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

double memory_mib(const std::string& file, const std::string& line) {
  std::ifstream stream("/proc/self/" + file);
  double kib = 0;
  for (std::string word; stream >> word;) {
    if (word == line) {
      stream >> kib;
      break;
    }
  }
  return kib / 1024;
}

} // namespace bench
