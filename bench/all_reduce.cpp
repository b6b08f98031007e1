// Times all-reduces of two ranks over each backend, in the backend's memory, if
// it offers some, and in other memory. They are compared with a memcpy of as
// many bytes, and with "in_place": the sum of two arrays in memory that both
// ranks share, of which each rank computes half. No all-reduce is faster than
// "in_place".

#include <bench/commands.h>
#include <bench/groups.h>
#include <bench/paired.h>
#include <bench/shared_memory.h>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <cstring>

namespace bench {
namespace {

struct Size {
  const char* name;
  int64_t bytes;
};

constexpr Size kSizes[] = {
    {"1KB", 1 << 10},
    {"16KB", 16 << 10},
    {"256KB", 256 << 10},
    {"1MB", 1 << 20},
    {"25MB", 25 << 20},
    {"100MB", 100 << 20}};
// Short calls are timed in batches of this many bytes.
constexpr int64_t kBatchBytes = 1 << 20;
constexpr int64_t kLargestBatch = 50;

#if defined(__x86_64__)
[[gnu::target_clones("avx512f", "avx2", "default")]]
#endif
void add_in_place(
    float* __restrict a, float* __restrict b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    a[i] = b[i] = a[i] + b[i];
  }
}

Variant in_place(
    const ddp::ProcessGroup& group,
    const SpinBarrier& barrier,
    int64_t count) {
  const auto memory = shared_tensor(group, 2 * count, at::kFloat);
  return timed("in_place", [memory, barrier, count, rank = group.rank()] {
    const auto half = count / 2;
    auto* const own = memory.data_ptr<float>() + rank * half;
    barrier();
    add_in_place(own, own + count, half);
    barrier();
  });
}

Variant copy(int64_t count) {
  return timed("memcpy", [from = at::ones({count}), to = at::ones({count})] {
    std::memcpy(to.data_ptr(), from.const_data_ptr(), from.nbytes());
  });
}

Variant reduction(
    const std::string& name,
    const c10::intrusive_ptr<c10d::Backend>& backend,
    const at::Tensor& tensor) {
  return timed(name, [backend, tensors = std::vector{tensor}]() mutable {
    backend->allreduce(tensors)->wait();
  });
}

/// Runs `variant` often enough for a measurable time; its time is the mean.
Variant batched(Variant variant, int64_t bytes) {
  const auto calls = std::clamp(kBatchBytes / bytes, int64_t{1}, kLargestBatch);
  variant.run = [run = variant.run, calls] {
    double seconds = 0;
    for (int64_t i = 0; i < calls; ++i) {
      seconds += run();
    }
    return seconds / static_cast<double>(calls);
  };
  return variant;
}

std::vector<Variant> variants_of(
    const Size& size,
    const std::vector<ddp::ProcessGroup>& groups,
    const SpinBarrier& barrier) {
  const auto& group = groups.front();
  const auto count = size.bytes / 4;
  std::vector<Variant> variants;
  for (const auto& other : groups) {
    const auto backend = other.c10d()->getBackend(c10::kCPU);
    const auto name = other.backend();
    variants.push_back(reduction(name, backend, at::zeros({count})));
    if (backend->supportsTensorAlloc(-1)) {
      variants.back().name += "_private";
      auto own = backend->allocateTensor(count, at::kFloat);
      variants.push_back(reduction(name, backend, own.zero_()));
    }
  }
  if (group.size() == 2) {
    variants.push_back(in_place(group, barrier, count));
  }
  variants.push_back(copy(count));
  for (auto& variant : variants) {
    variant = batched(variant, size.bytes);
  }
  return variants;
}

void measure(
    const Size& size,
    double seconds,
    const std::vector<ddp::ProcessGroup>& groups,
    const SpinBarrier& barrier) {
  const auto& group = groups.front();
  auto variants = variants_of(size, groups, barrier);
  run_in_turns(
      variants, rounds_within(seconds, variants, barrier, group), barrier);
  take_slowest(variants, group);
  for (const auto& variant : variants) {
    if (group.rank() == 0 && variant.name != "memcpy") {
      auto result = result_of(
          "all_reduce_" + variant.name + "_" + size.name, variant, variants);
      result["bytes"] = size.bytes;
      print(result);
    }
  }
}

} // namespace

void measure_all_reduce(const Arguments& arguments) {
  pin_to_one_cpu();
  std::vector<ddp::ProcessGroup> groups;
  for (size_t i = 1; i < arguments.size(); ++i) {
    if (auto group = find_group(arguments[i])) {
      groups.push_back(*group);
    }
  }
  const SpinBarrier barrier(groups.at(0));
  for (const auto& size : kSizes) {
    measure(size, std::stod(arguments[0]) / std::size(kSizes), groups, barrier);
  }
}

} // namespace bench
