// Trains on numbered samples and counts in the checkpoint how often each one
// was seen in each epoch, whatever becomes of the ranks meanwhile.
// Run: elastic_trainer FOLDER EPOCHS SAMPLES PAUSE_MS

#include <ddp/ddp.h>
#include <torch/torch.h>

#include <chrono>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <thread>

namespace {

constexpr int64_t kBatch = 4;
constexpr int64_t kSaveEvery = 5;

struct Arguments {
  std::string folder;
  int64_t epochs = 1;
  int64_t samples = 1;
  int64_t pause_ms = 0;
};

torch::data::datasets::TensorDataset numbers(int64_t count) {
  return torch::data::datasets::TensorDataset(
      torch::arange(count, torch::kFloat).unsqueeze(1));
}

// Adds up what the ranks have seen since the last call.
void count_seen(
    const ddp::ProcessGroup& group,
    torch::Tensor& fresh,
    torch::Tensor& seen) {
  group.all_reduce(fresh);
  seen.add_(fresh);
  fresh.zero_();
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

// As programs do that want to lose nothing when the others are lost; here not
// before a file is there.
void save_alone(
    const std::string& folder,
    ddp::TrainingState& run,
    const char* sign) {
  while (!std::ifstream(sign)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  try {
    ddp::CheckpointManager(folder, run).save(1000000);
    std::printf("saved alone\n");
  } catch (const std::exception& error) {
    std::printf("cannot save alone: %s\n", error.what());
  }
}

void train(const Arguments& arguments) {
  auto group = ddp::init_process_group();
  ddp::manual_seed(7, group);
  torch::nn::Sequential net(
      torch::nn::Linear(1, 32), torch::nn::ReLU(), torch::nn::Linear(32, 1));
  ddp::Reducer reducer(net, group);
  torch::optim::SGD optimizer(net->parameters(), 1e-3);
  auto loader = ddp::make_data_loader(
      numbers(arguments.samples)
          .map(torch::data::transforms::Stack<torch::data::TensorExample>()),
      ddp::DistributedSampler(arguments.samples, group),
      ddp::DataLoaderOptions(kBatch));
  auto seen = torch::zeros({arguments.epochs, arguments.samples}, torch::kLong);
  auto fresh = torch::zeros_like(seen);
  int64_t step = 0;
  ddp::TrainingState run;
  run.add("net", net).add("optimizer", optimizer).add("loader", *loader);
  run.add("step", step).add("seen", seen);
  ddp::CheckpointManager checkpoints(arguments.folder, run, group);
  checkpoints.load();
  if (group.rank() == 0) {
    std::printf(
        "goes on from step %" PRId64 " with %" PRId64 " ranks\n",
        step,
        static_cast<int64_t>(group.size()));
  }
  const auto train_epoch = [&](int64_t epoch) {
    loader->set_epoch(epoch);
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      (net->forward(batch.data / arguments.samples) - 1)
          .square()
          .mean()
          .backward();
      optimizer.step();
      fresh[epoch].index_add_(
          0,
          batch.data.flatten().to(torch::kLong),
          torch::ones({batch.data.numel()}, torch::kLong));
      if (++step % kSaveEvery == 0) {
        count_seen(group, fresh, seen);
        checkpoints.save(step);
      }
      std::this_thread::sleep_for(
          std::chrono::milliseconds(arguments.pause_ms));
    }
  };
  try {
    for (int64_t epoch = loader->epoch(); epoch < arguments.epochs; ++epoch) {
      train_epoch(epoch);
    }
  } catch (const c10::DistError&) {
    if (const auto* sign = std::getenv("SAVE_ALONE_AFTER")) {
      save_alone(arguments.folder, run, sign);
    }
    throw;
  }
  count_seen(group, fresh, seen);
  if (group.rank() == 0) {
    report(seen, step);
  }
}

} // namespace

int main(int, char** argv) {
  if (std::getenv("SAVE_ALONE_AFTER")) {
    std::signal(SIGTERM, SIG_IGN);
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  train(
      {argv[1], std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4])});
}
