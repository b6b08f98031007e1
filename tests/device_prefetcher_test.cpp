// Batches on a fake GPU, which records the order of its streams and the host's
// waits (support/fake_gpu.h).

#include <ddp/ddp.h>
#include <tests/support/fake_gpu.h>
#include <tests/support/made_samples.h>

#include <c10/core/StreamGuard.h>

namespace ddp::test::device_prefetcher_test {

using torch::data::samplers::SequentialSampler;
using torch::data::transforms::Stack;

Made rows(size_t broken = kSize) {
  return Made([broken](size_t index) {
    if (index == broken) {
      throw std::out_of_range("a broken sample");
    }
    return torch::full({3}, static_cast<int64_t>(index), torch::kFloat);
  });
}

auto theirs(size_t workers, size_t broken = kSize) {
  return torch::data::make_data_loader(
      rows(broken).map(Stack<>()),
      SequentialSampler(kSize),
      torch::data::DataLoaderOptions(4).workers(workers));
}

auto ours(size_t workers, size_t broken = kSize) {
  return make_data_loader(
      rows(broken).map(Stack<>()),
      SequentialSampler(kSize),
      DataLoaderOptions(4).workers(workers).device(fake_gpu::kDevice));
}

/// Computes with each batch on the loop's stream, as training does.
template <typename Batches>
int64_t sum_of(Batches& batches, const c10::Stream& stream) {
  const c10::StreamGuard guard(stream);
  int64_t sum = 0;
  for (auto& batch : batches) {
    REQUIRE(batch.data.device() == fake_gpu::kDevice);
    REQUIRE(batch.target.device() == fake_gpu::kDevice);
    REQUIRE(fake_gpu::is_recorded(batch.data, stream));
    REQUIRE(fake_gpu::is_recorded(batch.target, stream));
    const auto result = batch.data.mul(2).sum() + batch.target.sum();
    sum += fake_gpu::on_cpu(result).template item<int64_t>();
  }
  return sum;
}

constexpr int64_t kSum = 7 * (kSize - 1) * kSize / 2;

FAKE_GPU_TEST("batches come to a device on a stream of their own", 1) {
  const auto stream = fake_gpu::new_stream();
  for (const size_t workers : {0, 1, 3}) {
    auto loader = theirs(workers);
    DevicePrefetcher batches(*loader, fake_gpu::kDevice);
    const auto waits = fake_gpu::host_waits();
    for (int epoch = 0; epoch < 2; ++epoch) {
      REQUIRE(sum_of(batches, stream) == kSum);
    }
    auto own_loader = ours(workers);
    for (int epoch = 0; epoch < 2; ++epoch) {
      REQUIRE(sum_of(*own_loader, stream) == kSum);
    }
    REQUIRE(fake_gpu::host_waits() == waits);
  }
}

FAKE_GPU_TEST("an error is thrown after the batches that came before it", 1) {
  const auto count = [](auto& batches) {
    int batches_seen = 0;
    try {
      for (auto& batch : batches) {
        batches_seen += batch.data.size(0) == 4;
      }
    } catch (const std::exception&) {
      return batches_seen;
    }
    return -1;
  };
  for (const size_t workers : {0, 2}) {
    auto loader = theirs(workers, 13);
    DevicePrefetcher batches(*loader, fake_gpu::kDevice);
    REQUIRE(count(batches) == 3);
    auto own_loader = ours(workers, 13);
    REQUIRE(count(*own_loader) == 3);
  }
}

FAKE_GPU_TEST("what was copied ahead does not count as done", 1) {
  DistributedSampler sampler(kSize, 2, 0);
  auto loader = make_data_loader(
      rows().map(Stack<>()),
      sampler,
      DataLoaderOptions(2).workers(2).device(fake_gpu::kDevice));
  int64_t done = 0;
  for (auto& batch : *loader) {
    done += 2 * batch.data.size(0);
    REQUIRE(loader->state_dict()["samples_done"].item<int64_t>() == done);
  }
  REQUIRE(done == kSize);
}

TEST_CASE("on the CPU batches are passed on, and none is fetched ahead") {
  size_t fetched = 0;
  auto loader = torch::data::make_data_loader(
      Made([&](size_t) {
        ++fetched;
        return torch::zeros({1});
      }),
      SequentialSampler(kSize),
      1);
  size_t seen = 0;
  for (auto& batch : DevicePrefetcher(*loader, c10::kCPU)) {
    REQUIRE(
        batch[0].target.template item<int64_t>() == static_cast<int64_t>(seen));
    REQUIRE(fetched == ++seen);
  }
  REQUIRE(seen == kSize);
}

} // namespace ddp::test::device_prefetcher_test
