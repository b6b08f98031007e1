// Time and memory of a sampler of 10^8 samples.
#include <bench/process_memory.h>
#include <ddp/samplers/distributed_sampler.h>
#include <tests/support/samplers.h>

namespace ddp::test::large_sampler_test {

/// The peak memory of this process, in GB.
double peak_memory() {
  const double mib = bench::memory_mib("status", "VmHWM:");
  return mib > 0 ? mib * 1024 * 1024 / 1e9
                 : std::numeric_limits<double>::infinity();
}

TEST_CASE("10^8 samples on 4 ranks take seconds and a few bytes each", "[.]") {
  const auto before = peak_memory();
  const auto start = std::chrono::steady_clock::now();
  DistributedSampler sampler(100'000'000, 4, 1);
  sampler.reset();
  const auto first = sampler.next(5);
  const std::chrono::duration<double> time =
      std::chrono::steady_clock::now() - start;
  const auto peak = peak_memory();
  std::printf(
      "10^8 samples, rank 1 of 4: %.2f s, peak memory %.2f GB (%.2f before)\n",
      time.count(),
      peak,
      before);
  // Python's: list(DistributedSampler(range(10**8), 4, 1))[:5]
  using Indices = std::vector<size_t>;
  REQUIRE(first == Indices{46248265, 84848564, 78185926, 77901568, 71050072});
  REQUIRE(sampler.size() == 25'000'000);
  REQUIRE(time.count() < 60);
  REQUIRE(peak < 2.5);
}

} // namespace ddp::test::large_sampler_test
