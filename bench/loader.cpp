// Compares LibTorch's data loader and ddp::DataLoader, in turns: samples per
// second, and microseconds of CPU time of all threads per sample, for small and
// large images that are read as fast as possible; and the time of a training
// step with loading and on one loaded batch.
// Run: ddp_bench_loader [rounds]

#include <bench/paired.h>
#include <ddp/random.h>
#include <ddp/samplers/data_loader.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>

namespace {

/// Images in memory; a sample is a random crop of one, as floats.
struct Images : torch::data::datasets::Dataset<Images> {
  Images(int64_t count, int64_t side, int64_t cropped)
      : pixels(torch::randint(256, {count, 3, side, side}, torch::kByte)),
        labels(torch::randint(10, {count}, torch::kLong)),
        crop(cropped) {}

  torch::data::Example<> get(size_t index) override {
    std::mt19937_64 random(ddp::sample_seed(0, 0, index));
    std::uniform_int_distribution<int64_t> place(0, pixels.size(2) - crop);
    const auto i = static_cast<int64_t>(index);
    const auto part =
        pixels[i].narrow(1, place(random), crop).narrow(2, place(random), crop);
    return {part.to(torch::kFloat).div_(255), labels[i]};
  }
  std::optional<size_t> size() const override {
    return labels.size(0);
  }

  at::Tensor pixels, labels;
  int64_t crop;
};

struct Cost {
  std::vector<double> samples_per_second;
  std::vector<double> cpu_microseconds;

  template <typename Loader>
  void measure(Loader& loader) {
    const auto cpu_start = std::clock();
    double samples = 0;
    const auto seconds = bench::seconds_of([&] {
      for (auto& batch : loader) {
        samples += static_cast<double>(batch.data.size(0));
      }
    });
    cpu_microseconds.push_back(
        static_cast<double>(std::clock() - cpu_start) * 1e6 / CLOCKS_PER_SEC /
        samples);
    samples_per_second.push_back(samples / seconds);
  }

  void print(const char* name) const {
    std::printf(
        "  %s %7.0f samples/s, %6.1f us of CPU",
        name,
        bench::quartiles(samples_per_second).median,
        bench::quartiles(cpu_microseconds).median);
  }
};

/// LibTorch's loader and ddp's, of the samples in their order.
auto make_loaders(const Images& images, size_t batch_size, size_t workers) {
  const auto stacked = Images(images).map(torch::data::transforms::Stack<>());
  const torch::data::samplers::SequentialSampler sampler(*images.size());
  return std::pair(
      torch::data::make_data_loader(
          stacked,
          sampler,
          torch::data::DataLoaderOptions(batch_size).workers(workers)),
      ddp::make_data_loader(
          stacked,
          sampler,
          ddp::DataLoaderOptions(batch_size).workers(workers)));
}

void compare(const Images& images, size_t batch_size, int rounds) {
  for (const size_t workers : {0, 1, 2, 4}) {
    const auto [theirs, ours] = make_loaders(images, batch_size, workers);
    Cost their_cost, our_cost;
    for (int round = 0; round < rounds; ++round) {
      their_cost.measure(*theirs);
      our_cost.measure(*ours);
    }
    std::printf(
        "%3ld pixels, batch %3zu, %zu workers:",
        static_cast<long>(images.crop),
        batch_size,
        workers);
    their_cost.print("LibTorch");
    our_cost.print("ddp");
    std::printf("\n");
  }
}

/// The training of a small net on one thread.
struct Training {
  torch::nn::Sequential net{
      torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 16, 3).stride(2)),
      torch::nn::ReLU(),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 32, 3).stride(2)),
      torch::nn::ReLU(),
      torch::nn::AdaptiveAvgPool2d(1),
      torch::nn::Flatten(),
      torch::nn::Linear(32, 10)};
  torch::optim::SGD optimizer{net->parameters(), 0.1};

  void step(const torch::data::Example<>& batch) {
    optimizer.zero_grad();
    torch::nll_loss(
        torch::log_softmax(net->forward(batch.data), 1), batch.target)
        .backward();
    optimizer.step();
  }

  template <typename Batches>
  double milliseconds_per_step(Batches& batches) {
    int steps = 0;
    const auto seconds = bench::seconds_of([&] {
      for (auto& batch : batches) {
        step(batch);
        ++steps;
      }
    });
    return 1e3 * seconds / steps;
  }
};

void compare_training(const Images& images, size_t batch_size, int rounds) {
  Training training;
  const auto [theirs, ours] = make_loaders(images, batch_size, 1);
  const std::vector<torch::data::Example<>> same(
      *images.size() / batch_size,
      *make_loaders(images, batch_size, 0).first->begin());
  std::vector<double> without, libtorch, ddp;
  for (int round = 0; round < rounds; ++round) {
    without.push_back(training.milliseconds_per_step(same));
    libtorch.push_back(training.milliseconds_per_step(*theirs));
    ddp.push_back(training.milliseconds_per_step(*ours));
  }
  std::printf(
      "training, %ld pixels, batch %zu, 1 worker: %.2f ms without loading, "
      "LibTorch %.2f, ddp %.2f\n",
      static_cast<long>(images.crop),
      batch_size,
      bench::quartiles(without).median,
      bench::quartiles(libtorch).median,
      bench::quartiles(ddp).median);
}

} // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 7;
  at::set_num_threads(1);
  const Images small(20000, 36, 32);
  const Images large(512, 256, 224);
  compare(small, 128, rounds);
  compare(large, 32, rounds);
  compare_training(small, 128, rounds);
  compare_training(large, 32, rounds);
}
