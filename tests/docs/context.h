// Declarations that the pages' code blocks use. Compiled, but never linked.
#pragma once

#include <ddp/ddp.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/torch.h>

#include <atomic>
#include <iostream>
#include <random>
#include <set>

#pragma GCC diagnostic ignored "-Wunused"
#pragma GCC diagnostic ignored "-Wreturn-type"

struct Net : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& input);
};
struct ResNetOptions {
  int64_t depth;
  int64_t classes;
};
struct ResNet : Net {
  explicit ResNet(const ResNetOptions& options);
};
struct Samples : torch::data::datasets::Dataset<Samples> {
  torch::data::Example<> get(size_t index) override;
  std::optional<size_t> size() const override;
};
using Dataset = decltype(Samples().map(torch::data::transforms::Stack<>()));
using Loader = decltype(ddp::make_data_loader(
    std::declval<Dataset>(),
    std::declval<ddp::DistributedSampler&>(),
    ddp::DataLoaderOptions()));
struct Reader : torch::data::datasets::ChunkDataReader<torch::data::Example<>> {
  using BatchType = ChunkType;
  ChunkType read_chunk(size_t chunk_index) override;
  size_t chunk_count() override;
  void reset() override;
};
struct CudaGraph {
  void capture_begin();
  void capture_end();
};

extern int argc;
extern char** argv;
extern std::string path;
extern int64_t rank, world_size, epochs, n_epochs, first, step, batch_size;
extern int64_t preloaders, chunk_count;
extern uint64_t seed;
extern double lr;
extern bool resuming;
extern ddp::ProcessGroup group;
extern std::shared_ptr<Net> net;
extern std::shared_ptr<ResNet> model;
extern ddp::Reducer reducer;
extern torch::optim::SGD optimizer;
extern Dataset dataset, training_set, testing_set;
extern ddp::DistributedSampler sampler;
extern ddp::BatchPlan plan;
extern Loader loader;
extern Reader reader;
extern torch::OrderedDict<std::string, torch::Tensor> state, random_numbers;
extern ddp::CheckpointManager run;
extern std::vector<torch::data::Example<>> micro_batches;
extern CudaGraph graph;
extern torch::Tensor input, output, target, a, b, c, d, correct;
torch::Tensor criterion(
    const torch::Tensor& output,
    const torch::Tensor& target);
torch::Tensor loss_of(const torch::Tensor& output, const torch::Tensor& target);
void train();
Loader& batches_of(const ddp::ProcessGroup& group);
void train_epoch(
    std::shared_ptr<Net> net,
    torch::optim::SGD& optimizer,
    Loader& batches);
void validate(const ddp::ProcessGroup& group);
bool time_to_save();

// Uses classes that no block uses, but that the library must export.
at::Tensor normalised(const at::Tensor& x, const ddp::ProcessGroup& group) {
  const torch::nn::BatchNormOptions options(2);
  return ddp::SyncBatchNorm1d(options, group)->forward(x) +
      ddp::SyncBatchNorm2d(options, group)->forward(x) +
      ddp::SyncBatchNorm3d(options, group)->forward(x);
}
