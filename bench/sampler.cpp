// Compares the draw of an epoch's indices by DistributedSampler, for one rank
// of two, with torch::randperm of all: time and peak memory.

#include <bench/commands.h>
#include <bench/paired.h>
#include <bench/process_memory.h>

#include <ATen/ops/randperm.h>
#include <ddp/samplers/distributed_sampler.h>

#include <algorithm>
#include <fstream>

namespace bench {
namespace {

/// Also keeps the highest peak memory of a run in `peak_mib`.
Variant with_peak(
    const std::string& name,
    double& peak_mib,
    const std::function<void()>& function) {
  return {name, [&peak_mib, function] {
            std::ofstream("/proc/self/clear_refs") << "5"; // resets the peak
            const auto before = memory_mib("status", "VmRSS:");
            const auto seconds = seconds_of(function);
            peak_mib =
                std::max(peak_mib, memory_mib("status", "VmHWM:") - before);
            return seconds;
          }};
}

} // namespace

void measure_sampler(const Arguments& arguments) {
  const auto samples = std::stoll(arguments.at(0));
  double sampler_mib = 0;
  double randperm_mib = 0;
  std::vector<Variant> variants{
      with_peak(
          "sampler",
          sampler_mib,
          [samples] {
            ddp::DistributedSampler sampler(
                static_cast<size_t>(samples), /*num_replicas=*/2, /*rank=*/0);
            sampler.next(1); // draws them
          }),
      with_peak("randperm", randperm_mib, [samples] {
        at::randperm(samples, at::kLong);
      })};
  // The first run's memory includes code that is called for the first time.
  run_in_turns(variants, 1);
  for (auto& variant : variants) {
    variant.seconds.clear();
  }
  sampler_mib = randperm_mib = 0;
  run_in_turns(variants, std::stoll(arguments.at(1)));
  auto result = result_of("sampler", variants[0], variants);
  result["samples"] = samples;
  result["peak_mib"] = sampler_mib;
  result["memory_ratio_randperm"] = sampler_mib / randperm_mib;
  print(result);
}

} // namespace bench
