// Batches on a GPU, where there is none: on a device that notes the order of
// its streams and the host's waits (support/fake_gpu.h).

#include <ddp/samplers/data_loader.h>
#include <ddp/samplers/device_prefetcher.h>
#include <ddp/samplers/distributed_sampler.h>
#include <tests/support/fake_gpu.h>
#include <tests/support/ranks.h>
#include <tests/support/samplers.h>

#include <c10/core/StreamGuard.h>

namespace ddp::test::device_prefetcher_test {

using torch::data::Example;
using torch::data::samplers::SequentialSampler;
using torch::data::transforms::Stack;

constexpr size_t kSize = 22;

struct Rows : torch::data::datasets::Dataset<Rows> {
  explicit Rows(size_t broken_sample = kSize) : broken(broken_sample) {}
  Example<> get(size_t index) override {
    if (index == broken) {
      throw std::out_of_range("a broken sample");
    }
    const auto value = static_cast<int64_t>(index);
    return {torch::full({3}, value, torch::kFloat), torch::tensor(value)};
  }
  std::optional<size_t> size() const override {
    return kSize;
  }
  size_t broken;
};

template <typename Body>
void with_fake_gpu(const Body& body) {
  ranks(1, [&](ProcessGroup) {
    fake_gpu::install();
    body();
    const auto races = fake_gpu::order().take_races();
    INFO((races.empty() ? "" : races[0]));
    REQUIRE(races.empty());
  });
}

auto theirs(size_t workers, size_t broken = kSize) {
  return torch::data::make_data_loader(
      Rows(broken).map(Stack<>()),
      SequentialSampler(kSize),
      torch::data::DataLoaderOptions(4).workers(workers));
}

auto ours(size_t workers, size_t broken = kSize) {
  return make_data_loader(
      Rows(broken).map(Stack<>()),
      SequentialSampler(kSize),
      DataLoaderOptions(4).workers(workers).device(fake_gpu::kDevice));
}

/// Computes with each batch on a stream of the loop's, as training does.
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

TEST_CASE("batches come to a device on a stream of their own") {
  with_fake_gpu([] {
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
  });
}

TEST_CASE("an error is thrown after the batches that came before it") {
  with_fake_gpu([] {
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
  });
}

TEST_CASE("what was copied ahead does not count as done") {
  with_fake_gpu([] {
    DistributedSampler sampler(kSize, 2, 0);
    auto loader = make_data_loader(
        Rows().map(Stack<>()),
        sampler,
        DataLoaderOptions(2).workers(2).device(fake_gpu::kDevice));
    int64_t done = 0;
    for (auto& batch : *loader) {
      done += 2 * batch.data.size(0);
      REQUIRE(loader->state_dict()["samples_done"].item<int64_t>() == done);
    }
    REQUIRE(done == kSize);
  });
}

TEST_CASE("on the CPU batches are passed on, and none is fetched ahead") {
  size_t fetched = 0;
  struct Counted : torch::data::datasets::Dataset<Counted, size_t> {
    explicit Counted(size_t* counter) : count(counter) {}
    size_t get(size_t index) override {
      ++*count;
      return index;
    }
    std::optional<size_t> size() const override {
      return kSize;
    }
    size_t* count;
  };
  auto loader = torch::data::make_data_loader(
      Counted(&fetched), SequentialSampler(kSize), 1);
  size_t seen = 0;
  for (auto& batch : DevicePrefetcher(*loader, c10::kCPU)) {
    REQUIRE(batch[0] == seen);
    REQUIRE(fetched == ++seen);
  }
  REQUIRE(seen == kSize);
}

} // namespace ddp::test::device_prefetcher_test
