// Trains on numbered samples while nodes come and go, and counts how often each
// one was seen in each epoch; the state is in memory alone.
// Run: in_process_trainer EPOCHS SAMPLES PAUSE_MS

#include <ddp/ddp.h>
#include <torch/torch.h>

#include <unistd.h>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

constexpr int64_t kBatch = 4;

struct Arguments {
  int64_t epochs = 1;
  int64_t samples = 1;
  int64_t pause_ms = 0;
};

torch::data::datasets::TensorDataset numbers(int64_t count) {
  return torch::data::datasets::TensorDataset(
      torch::arange(count, torch::kFloat).unsqueeze(1));
}

/// How often each sample is in the batches of all ranks.
torch::Tensor counts(
    const ddp::ProcessGroup& group,
    const torch::Tensor& batch,
    int64_t samples) {
  auto result = torch::zeros({samples}, torch::kLong);
  result.index_add_(
      0,
      batch.flatten().to(torch::kLong),
      torch::ones({batch.numel()}, torch::kLong));
  group.all_reduce(result);
  return result;
}

void report(const torch::Tensor& seen, int64_t steps) {
  std::printf(
      "finished after %" PRId64 " steps: samples were seen %" PRId64
      " to %" PRId64 " times, %" PRId64 " more than once\n",
      steps,
      seen.min().item<int64_t>(),
      seen.max().item<int64_t>(),
      seen.gt(1).sum().item<int64_t>());
}

void say(const char* what, const ddp::ProcessGroup& group, int64_t step) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  std::printf(
      "rank %" PRId64 " of %" PRId64 " pid %d %s step %" PRId64 ". %" PRId64
      "\n",
      group.rank(),
      group.size(),
      static_cast<int>(getpid()),
      what,
      step,
      static_cast<int64_t>(
          std::chrono::duration_cast<std::chrono::milliseconds>(now).count()));
}

void train(ddp::ElasticRun& run, const Arguments& arguments) {
  const auto group = run.group();
  ddp::manual_seed(7, group);
  torch::nn::Sequential net(
      torch::nn::Linear(1, 32), torch::nn::ReLU(), torch::nn::Linear(32, 1));
  ddp::Reducer reducer(net, group);
  torch::optim::SGD optimizer(
      net->parameters(), torch::optim::SGDOptions(1e-3).momentum(0.9));
  auto loader = ddp::make_data_loader(
      numbers(arguments.samples)
          .map(torch::data::transforms::Stack<torch::data::TensorExample>()),
      ddp::DistributedSampler(arguments.samples, group),
      ddp::DataLoaderOptions(kBatch));
  auto seen = torch::zeros({arguments.epochs, arguments.samples}, torch::kLong);
  int64_t step = 0;
  ddp::TrainingState state;
  state.add("net", net).add("optimizer", optimizer).add("loader", *loader);
  state.add("step", step).add("seen", seen);
  run.sync(state);
  std::printf("epoch %s.\n", std::getenv("DDP_EPOCH"));
  say("goes on from", group, step);
  for (int64_t epoch = loader->epoch(); epoch < arguments.epochs; ++epoch) {
    loader->set_epoch(epoch);
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      (net->forward(batch.data / arguments.samples) - 1)
          .square()
          .mean()
          .backward();
      optimizer.step();
      seen[epoch].add_(counts(group, batch.data, arguments.samples));
      say("did", group, ++step);
      std::this_thread::sleep_for(
          std::chrono::milliseconds(arguments.pause_ms));
      run.step();
    }
  }
  if (group.rank() == 0) {
    report(seen, step);
  }
}

} // namespace

int main(int, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const Arguments arguments{
      std::atoll(argv[1]), std::atoll(argv[2]), std::atoll(argv[3])};
  ddp::elastic([&](ddp::ElasticRun& run) { train(run, arguments); });
}
