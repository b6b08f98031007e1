// All-reduces of two ranks, waited for at once, over each backend: in memory of
// the backend's own where it offers some, and in any other. Against a memcpy of
// as many bytes and "in_place", a bare sum of two arrays in memory that both
// ranks share, each rank doing half of it: what no all-reduce is faster than.

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

Way in_place(
    const ddp::ProcessGroup& group,
    const std::shared_ptr<SharedMemory>& memory,
    const StartLine& line,
    int64_t count) {
  return {
      "in_place",
      [memory, &line, count, half = count / 2, rank = group.rank()] {
        auto* const own = static_cast<float*>(memory->data()) + rank * half;
        return seconds_of([&] {
          line.meet();
          add_in_place(own, own + count, half);
          line.meet();
        });
      },
      {}};
}

Way copy(int64_t count) {
  return {
      "memcpy",
      [from = at::ones({count}), to = at::ones({count})] {
        return seconds_of([&] {
          std::memcpy(to.data_ptr(), from.const_data_ptr(), from.nbytes());
        });
      },
      {}};
}

Way reduction(
    const std::string& name,
    const c10::intrusive_ptr<c10d::Backend>& backend,
    const at::Tensor& tensor) {
  return {
      name,
      [backend, tensor] {
        return seconds_of([&] {
          std::vector<at::Tensor> tensors{tensor};
          backend->allreduce(tensors)->wait();
        });
      },
      {}};
}

/// The mean of as many runs as are needed for a time that can be measured.
Way batched(Way way, int64_t bytes) {
  const auto calls = std::clamp(kBatchBytes / bytes, int64_t{1}, kLargestBatch);
  way.run = [run = way.run, calls] {
    double seconds = 0;
    for (int64_t i = 0; i < calls; ++i) {
      seconds += run();
    }
    return seconds / static_cast<double>(calls);
  };
  return way;
}

std::vector<Way> ways_of(
    const Size& size,
    const std::vector<ddp::ProcessGroup>& groups,
    const StartLine& line) {
  const auto& group = groups.front();
  const auto count = size.bytes / 4;
  std::vector<Way> ways;
  for (const auto& other : groups) {
    const auto backend = other.c10d()->getBackend(c10::kCPU);
    const auto name = other.backend();
    ways.push_back(reduction(name, backend, at::zeros({count})));
    if (backend->supportsTensorAlloc(-1)) {
      ways.back().name += "_private";
      auto own = backend->allocateTensor(count, at::kFloat);
      ways.push_back(reduction(name, backend, own.zero_()));
    }
  }
  if (group.size() == 2) {
    const auto memory = std::make_shared<SharedMemory>(
        group, static_cast<size_t>(2 * size.bytes));
    ways.push_back(in_place(group, memory, line, count));
  }
  ways.push_back(copy(count));
  for (auto& way : ways) {
    way = batched(way, size.bytes);
  }
  return ways;
}

void measure(
    const Size& size,
    double seconds,
    const std::vector<ddp::ProcessGroup>& groups,
    const StartLine& line) {
  const auto& group = groups.front();
  auto ways = ways_of(size, groups, line);
  const auto meet = [&] { line.meet(); };
  run_in_turns(ways, rounds_within(seconds, ways, meet, group), meet);
  take_slowest(ways, group);
  for (const auto& way : ways) {
    if (group.rank() == 0 && way.name != "memcpy") {
      auto result =
          result_of("all_reduce_" + way.name + "_" + size.name, way, ways);
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
  const StartLine line(groups.at(0));
  for (const auto& size : kSizes) {
    measure(size, std::stod(arguments[0]) / std::size(kSizes), groups, line);
  }
}

} // namespace bench
