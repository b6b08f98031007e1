// Cells in a plain std::vector, which the first step reports, and kept rightly.
// Run: ddprun --nproc-per-node 3 module_list --cells vector

#include "report_errors.h"

#include <ddp/ddp.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace nn = torch::nn;

constexpr int64_t kCells = 3;
constexpr int64_t kWidth = 16;

struct Arguments {
  std::string cells = "list";
  bool wrap = false;
  int64_t steps = 50;
  int64_t batch_size = 48; // of all ranks together
};

/// A weight and a bias that no module holds.
struct BareCell {
  torch::Tensor weight =
      torch::randn({kWidth, kWidth}).div_(4).requires_grad_();
  torch::Tensor bias = torch::zeros({kWidth}).requires_grad_();
};

/// Layers at both ends, and cells between them that are kept as `kind` says.
struct Net : nn::Module {
  nn::Linear first{nullptr}, last{nullptr};
  std::vector<nn::Linear> plain; // the bug: nothing in here is registered
  nn::ModuleList list;
  nn::ModuleDict dict;
  std::vector<BareCell> tensors; // nor in here, unless one by one

  explicit Net(const std::string& kind) {
    first = register_module("first", nn::Linear(8, kWidth));
    for (int64_t i = 0; i < kCells; ++i) {
      const auto name = "cell_" + std::to_string(i);
      if (kind == "vector") {
        plain.emplace_back(kWidth, kWidth);
      } else if (kind == "list") {
        list->push_back(nn::Linear(kWidth, kWidth));
      } else if (kind == "dict") {
        dict->update({{name, nn::Linear(kWidth, kWidth).ptr()}});
      } else {
        const auto& cell = tensors.emplace_back();
        if (kind == "registered-tensors") {
          register_parameter(name + "_weight", cell.weight);
          register_parameter(name + "_bias", cell.bias);
        }
      }
    }
    last = register_module("last", nn::Linear(kWidth, 1));
    if (!list->is_empty()) {
      register_module("list", list);
    }
    if (!dict->empty()) {
      register_module("dict", dict);
    }
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::tanh(first(x));
    for (auto& cell : plain) {
      x = torch::tanh(cell(x));
    }
    for (const auto& cell : *list) {
      x = torch::tanh(cell->as<nn::Linear>()->forward(x));
    }
    for (const auto& [name, cell] : dict->items()) {
      x = torch::tanh(cell->as<nn::Linear>()->forward(x));
    }
    for (const auto& cell : tensors) {
      x = torch::tanh(x.mm(cell.weight) + cell.bias);
    }
    return last(x);
  }

  /// The cells' parameters, registered or not.
  std::vector<torch::Tensor> of_cells() const {
    std::vector<torch::Tensor> all;
    const auto take = [&](const nn::Module& module) {
      const auto own = module.parameters();
      all.insert(all.end(), own.begin(), own.end());
    };
    for (const auto& cell : plain) {
      take(*cell);
    }
    take(*list);
    take(*dict);
    for (const auto& cell : tensors) {
      all.insert(all.end(), {cell.weight, cell.bias});
    }
    return all;
  }
};

/// All that learns. A module knows what was registered in it, no more.
std::vector<torch::Tensor> learned(const Net& net) {
  auto all = net.parameters();
  for (const auto& tensor : net.of_cells()) {
    const auto is_known = [&](const torch::Tensor& known) {
      return known.is_same(tensor);
    };
    if (std::none_of(all.begin(), all.end(), is_known)) {
      all.push_back(tensor);
    }
  }
  return all;
}

uint64_t hash_of(const std::vector<torch::Tensor>& tensors) {
  nn::Module holder("tensors");
  for (const auto& tensor : tensors) {
    holder.register_parameter(
        std::to_string(holder.parameters().size()), tensor);
  }
  return ddp::parameter_hash(holder);
}

/// Says of each rank what its cells have become, and whether that is the same.
void compare_cells(const Net& net, const ddp::ProcessGroup& group) {
  const auto hash = hash_of(net.of_cells());
  std::printf(
      "rank %d: cells %016" PRIx64 "\n", static_cast<int>(group.rank()), hash);
  const auto hashes = group.all_gather(
      torch::tensor({static_cast<int64_t>(hash)}).to(group.device()));
  const bool equal = std::all_of(
      hashes.begin(), hashes.end(), [&](const torch::Tensor& other) {
        return other.equal(hashes.front());
      });
  if (group.rank() == 0) {
    std::printf("the ranks' cells %s\n", equal ? "are equal" : "differ");
  }
}

void train(const Arguments& arguments) {
  auto group = ddp::init_process_group();
  ddp::manual_seed(5, group);
  auto net = std::make_shared<Net>(arguments.cells);
  net->to(group.device());
  for (const auto& tensor : net->of_cells()) {
    tensor.set_data(tensor.to(group.device())); // what is not registered stays
  }
  std::optional<ddp::Reducer> reducer;
  std::optional<ddp::DistributedDataParallel<Net>> model;
  if (arguments.wrap) {
    model.emplace(net, group);
  } else {
    reducer.emplace(net, group);
  }
  torch::optim::SGD optimizer(learned(*net), /*lr=*/0.05);

  torch::Tensor loss;
  for (int64_t step = 0; step < arguments.steps; ++step) {
    const auto batch = torch::randn({arguments.batch_size, 8}); // equal on all
    const auto input =
        batch.tensor_split(group.size())[group.rank()].to(group.device());
    const auto output = model ? (*model)->forward(input) : net->forward(input);
    optimizer.zero_grad();
    // Ranks' means are averaged: each counts as its share of the batch.
    loss =
        torch::mse_loss(
            output, input.sum(1, /*keepdim=*/true).sin(), at::Reduction::Sum) *
        (static_cast<double>(group.size()) / arguments.batch_size);
    loss.backward();
    optimizer.step();
  }

  compare_cells(*net, group);
  group.all_reduce(loss = loss.detach(), ddp::ReduceOp::kMean);
  if (group.rank() == 0) {
    std::printf(
        "step %" PRId64 ": loss %.6f\n", arguments.steps, loss.item<double>());
  }
}

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Cells that are kept rightly, and wrongly.");
  app.add_option("--cells", arguments.cells, "what keeps the cells")
      ->check(CLI::IsMember(
          {"vector", "list", "dict", "tensors", "registered-tensors"}));
  app.add_flag("--wrap", arguments.wrap, "wrapper instead of attached Reducer");
  app.add_option("--steps", arguments.steps)->check(CLI::PositiveNumber);
  app.add_option("--batch-size", arguments.batch_size, "of all ranks together")
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  return report_errors([&] { train(arguments); });
}
