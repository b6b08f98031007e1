// Trains on files that need not fit into memory: each rank maps only its own
// files. Run: ddprun --nproc-per-node 2 sharded_files --data FOLDER --make 8

#include "sharded_files.h"
#include "report_errors.h"

#include <ddp/ddp.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>

#include <cinttypes>
#include <cstdio>
#include <filesystem>

namespace {

constexpr int64_t kFeatures = 16;

struct Arguments {
  std::string data;
  int64_t make = 0;
  int64_t records = 4096;
  int64_t epochs = 3;
  int64_t batch_size = 64;
  int64_t workers = 2;
  uint64_t seed = 0;
};

/// Writes shards of points, labeled by whether they lie inside a ball. Each
/// rank writes its part of the files.
void make_shards(const Arguments& arguments, const ddp::ProcessGroup& group) {
  std::filesystem::create_directories(arguments.data);
  for (const auto& file : std::filesystem::directory_iterator(arguments.data)) {
    TORCH_CHECK(
        file.path().extension() != ".shard",
        "shards already exist, such as '",
        file.path().string(),
        "': omit --make, or choose another folder");
  }
  group.barrier(); // all have looked
  for (auto i = group.rank(); i < arguments.make; i += group.size()) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(i);
    const auto count = arguments.records + 100 * (i % 3); // sizes may differ
    const auto points = torch::randn({count, kFeatures}, generator);
    const auto inside = points.square().sum(1).lt(kFeatures);
    char name[32];
    std::snprintf(name, sizeof(name), "%06" PRId64 ".shard", i);
    const auto records = torch::cat({points, inside.unsqueeze(1)}, 1);
    const auto path = arguments.data + "/" + name;
    torch::from_file(path, /*shared=*/true, records.numel(), torch::kFloat)
        .copy_(records.flatten());
  }
  group.barrier();
}

/// The mean loss over all ranks' batches.
template <typename Loader>
double train_epoch(
    torch::nn::Sequential& net,
    Loader& loader,
    torch::optim::Optimizer& optimizer,
    const ddp::ProcessGroup& group) {
  auto total = torch::zeros({1}, torch::device(group.device()));
  int64_t steps = 0;
  for (auto& batch : loader) {
    optimizer.zero_grad();
    const auto guess = net->forward(batch.data.to(group.device()));
    const auto loss = torch::nn::functional::cross_entropy(
        guess, batch.target.to(group.device()));
    loss.backward(); // gradients are averaged here
    optimizer.step();
    total += loss.detach();
    ++steps;
  }
  group.all_reduce(total, ddp::ReduceOp::kMean);
  return total.item<double>() / static_cast<double>(steps);
}

void train(const Arguments& arguments) {
  auto group = ddp::init_process_group();
  ddp::manual_seed(arguments.seed, group);
  if (arguments.make > 0) {
    make_shards(arguments, group);
  }
  MappedShards shards(arguments.data, kFeatures); // maps nothing yet
  ShardSampler sampler(shards.shard_sizes(), group, arguments.seed);
  const auto loader = torch::data::make_data_loader(
      shards,
      sampler,
      torch::data::DataLoaderOptions(arguments.batch_size)
          .workers(arguments.workers));

  torch::nn::Sequential net(
      torch::nn::Linear(kFeatures, 64),
      torch::nn::ReLU(),
      torch::nn::Linear(64, 2));
  net->to(group.device());
  ddp::Reducer reducer(net, group);
  torch::optim::Adam optimizer(net->parameters(), 3e-3);
  for (int64_t epoch = 0; epoch < arguments.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    const auto loss = train_epoch(net, *loader, optimizer, group);
    const auto share = c10::str(sampler.size(), " of ", *shards.size());
    ddp::print(group, "epoch ", epoch + 1, ": loss ", loss);
    ddp::print(group, "  ", share, " records for each rank");
  }
  ddp::verify_same_parameters(*net, group);
  ddp::print(group, "parameters: equal on all ranks");
}

} // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Trains on memory-mapped files, data-parallel.");
  app.add_option("--data", arguments.data, "folder of *.shard")->required();
  app.add_option("--make", arguments.make, "number of files to write first");
  app.add_option(
         "--records",
         arguments.records,
         "records in each file that --make writes")
      ->check(CLI::PositiveNumber);
  app.add_option("--epochs", arguments.epochs)->check(CLI::PositiveNumber);
  app.add_option("--batch-size", arguments.batch_size, "records per rank")
      ->check(CLI::PositiveNumber);
  app.add_option("--workers", arguments.workers)->check(CLI::NonNegativeNumber);
  app.add_option("--seed", arguments.seed);
  CLI11_PARSE(app, argc, argv);
  return report_errors([&] { train(arguments); });
}
