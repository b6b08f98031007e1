// Residual blocks that choose their branch per instance and per input, so that
// ranks differ. Run: ddprun --nproc-per-node 3 dynamic_resblock --branch bound

#include "report_errors.h"

#include <ddp/ddp.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>

#include <cinttypes>
#include <cstdio>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace nn = torch::nn;

constexpr int64_t kClasses = 4;

struct Arguments {
  int64_t steps = 300;
  int64_t batch_size = 48; // of all ranks together
  std::string branch = "flag";
};

/// Group-norm, and not batch-norm: its numbers do not depend on which samples
/// a rank has, so that several processes compute what one would.
nn::Sequential make_layers(int64_t inputs, int64_t outputs) {
  return nn::Sequential(
      nn::Conv2d(nn::Conv2dOptions(inputs, outputs, 3).padding(1).bias(false)),
      nn::GroupNorm(2, outputs),
      nn::ReLU(),
      nn::Conv2d(nn::Conv2dOptions(outputs, outputs, 3).padding(1).bias(false)),
      nn::GroupNorm(2, outputs));
}

struct ResBlockOptions {
  int64_t inputs;
  int64_t outputs;
  bool add_output; // has a classifier beside what it passes on
  bool bound; // calls its branch by a function that captured `this`
};

struct ResBlockImpl : nn::Cloneable<ResBlockImpl> {
  /// Features, and the classifier's logits where there is one.
  using Output = std::pair<torch::Tensor, torch::Tensor>;

  explicit ResBlockImpl(const ResBlockOptions& block) : options(block) {
    ResBlockImpl::reset();
    if (options.bound) { // means this instance, whoever calls it
      bound_forward = [this](const torch::Tensor& x) { return choose(x); };
    }
  }

  void reset() override {
    layers =
        register_module("layers", make_layers(options.inputs, options.outputs));
    shortcut = register_module(
        "shortcut",
        nn::Conv2d(
            nn::Conv2dOptions(options.inputs, options.outputs, 1).bias(false)));
    if (options.add_output) {
      output = register_module("output", nn::Linear(options.outputs, kClasses));
    }
  }

  Output forward(const torch::Tensor& x) {
    return bound_forward ? bound_forward(x) : choose(x);
  }

  Output choose(const torch::Tensor& x) {
    return options.add_output ? with_output(x) : only_forward(x);
  }
  Output only_forward(const torch::Tensor& x) {
    return {torch::relu(layers->forward(x) + shortcut(x)), {}};
  }
  Output with_output(const torch::Tensor& x) {
    const auto features = only_forward(x).first;
    return {features, output(features.mean({2, 3}))};
  }

  ResBlockOptions options;
  nn::Sequential layers{nullptr};
  nn::Conv2d shortcut{nullptr};
  nn::Linear output{nullptr};
  std::function<Output(const torch::Tensor&)> bound_forward;
};
TORCH_MODULE(ResBlock);

/// Four blocks, of which the second has a classifier. Easy images leave there;
/// hard ones go on to the end, and both classifiers learn from them.
struct NetImpl : nn::Cloneable<NetImpl> {
  explicit NetImpl(bool bind_branches) : bound(bind_branches) {
    NetImpl::reset();
  }

  void reset() override {
    const auto block = [&](int64_t inputs, int64_t outputs, bool add_output) {
      return ResBlock(ResBlockOptions{inputs, outputs, add_output, bound});
    };
    stem = register_module(
        "stem", nn::Conv2d(nn::Conv2dOptions(1, 8, 3).padding(1)));
    early = register_module(
        "early", nn::ModuleList(block(8, 8, false), block(8, 16, true)));
    late = register_module(
        "late", nn::ModuleList(block(16, 16, false), block(16, 16, false)));
    head = register_module("head", nn::Linear(16, kClasses));
  }

  /// The sum of losses over images.
  torch::Tensor forward(
      const torch::Tensor& images,
      const torch::Tensor& labels,
      const torch::Tensor& hard) {
    auto x = torch::relu(stem(images));
    torch::Tensor logits;
    for (const auto& block : *early) {
      std::tie(x, logits) = block->as<ResBlock>()->forward(x);
    }
    const auto sum =
        nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum);
    const auto loss = nn::functional::cross_entropy(logits, labels, sum);
    if (hard.numel() == 0) {
      return loss;
    }
    x = x.index_select(0, hard);
    for (const auto& block : *late) {
      x = block->as<ResBlock>()->forward(x).first;
    }
    logits = head(x.mean({2, 3}));
    return loss +
        nn::functional::cross_entropy(
               logits, labels.index_select(0, hard), sum);
  }

  bool bound;
  nn::Conv2d stem{nullptr};
  nn::ModuleList early{nullptr};
  nn::ModuleList late{nullptr};
  nn::Linear head{nullptr};
};
TORCH_MODULE(Net);

struct Batch {
  torch::Tensor images; // [N, 1, 8, 8]
  torch::Tensor labels; // [N]
};

/// Bars at one of four places, under noise: much of it in the first images of
/// the batch, so that some ranks have hard images only, and others none.
Batch draw_batch(int64_t count) {
  const auto labels = torch::randint(kClasses, {count});
  const auto hard = torch::randint(count, {1}).item<int64_t>();
  auto noise = torch::randn({count, 1, 8, 8}) * 0.1;
  noise.narrow(0, 0, hard).mul_(6);
  const auto places = torch::arange(8).div(2, "floor");
  const auto bars = labels.unsqueeze(1).eq(places).to(torch::kFloat);
  return {bars.view({count, 1, 1, 8}) + noise, labels};
}

/// The images whose rows differ much: bars make all rows alike.
torch::Tensor hard_images(const torch::Tensor& images) {
  const auto rows = images.diff(1, 2).abs().mean({1, 2, 3});
  return rows.gt(0.3).nonzero().squeeze(1);
}

/// This rank's share of a batch that all ranks draw alike.
torch::Tensor share_of(const torch::Tensor& batch, ddp::ProcessGroup& group) {
  return batch.tensor_split(group.size())[group.rank()].to(group.device());
}

void train(const Arguments& arguments) {
  auto group = ddp::init_process_group();
  TORCH_CHECK_VALUE(
      arguments.batch_size >= group.size(),
      "--batch-size ",
      arguments.batch_size,
      " leaves some of ",
      group.size(),
      " ranks without an image");
  ddp::manual_seed(3, group);
  Net net(arguments.branch != "flag");
  Net original = net;
  if (arguments.branch == "stale-clone") {
    // The bug: the clone's blocks have functions that mean the original's.
    net = Net(std::dynamic_pointer_cast<NetImpl>(original->clone()));
    original->to(group.device());
  }
  net->to(group.device());
  ddp::Reducer reducer(net, group);
  torch::optim::SGD optimizer(
      net->parameters(), torch::optim::SGDOptions(0.02).momentum(0.9));

  torch::Tensor loss;
  int64_t size = 0;
  int64_t hard_size = 0;
  for (int64_t step = 0; step < arguments.steps; ++step) {
    const auto batch = draw_batch(arguments.batch_size);
    const auto images = share_of(batch.images, group);
    const auto hard = hard_images(images);
    size = images.size(0);
    hard_size = hard.numel();
    optimizer.zero_grad();
    // Ranks' means are averaged: each counts as its share of the batch.
    loss = net->forward(images, share_of(batch.labels, group), hard) *
        (static_cast<double>(group.size()) / arguments.batch_size);
    loss.backward();
    optimizer.step();
  }

  std::printf(
      "rank %d: %" PRId64 " of %" PRId64
      " images of the last batch were hard\n",
      static_cast<int>(group.rank()),
      hard_size,
      size);
  group.all_reduce(loss = loss.detach(), ddp::ReduceOp::kMean);
  const auto hash = ddp::parameter_hash(*net);
  if (group.rank() == 0) {
    std::printf(
        "step %" PRId64 ": loss %.6f, parameters %016" PRIx64 "\n",
        arguments.steps,
        loss.item<double>(),
        hash);
  }
}

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Residual blocks that choose their branch while they run.");
  app.add_option("--steps", arguments.steps)->check(CLI::PositiveNumber);
  app.add_option("--batch-size", arguments.batch_size, "of all ranks together")
      ->check(CLI::PositiveNumber);
  app.add_option(
         "--branch",
         arguments.branch,
         "flag: chosen in forward; bound: by a function that captured `this`; "
         "stale-clone: by one that captured the original's")
      ->check(CLI::IsMember({"flag", "bound", "stale-clone"}));
  CLI11_PARSE(app, argc, argv);
  return report_errors([&] { train(arguments); });
}
