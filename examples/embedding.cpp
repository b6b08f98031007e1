// An embedding that all ranks share and keep equal, trained with dense or
// sparse gradients. Run: ddprun --nproc-per-node 3 embedding --sparse

#include "report_errors.h"

#include <ddp/ddp.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>

#include <iostream>
#include <string>
#include <tuple>
#include <vector>

struct Arguments {
  std::string rnn = "linear";
  bool sparse = false;
  bool disjoint = false;
  int64_t steps = 300;
  int64_t batch_size = 48; // samples per step, over all ranks
};

constexpr int64_t kWords = 1000;
constexpr int64_t kFeatures = 10;
constexpr int64_t kLength = 6; // of a sentence

struct NetImpl : torch::nn::Module {
  torch::nn::Embedding embedding{nullptr};
  torch::nn::Linear linear{nullptr}; // one of these three
  torch::nn::GRU gru{nullptr};
  torch::nn::LSTM lstm{nullptr};

  explicit NetImpl(const Arguments& arguments) {
    embedding = register_module(
        "embedding",
        torch::nn::Embedding(torch::nn::EmbeddingOptions(kWords, kFeatures)
                                 .sparse(arguments.sparse)));
    if (arguments.rnn == "gru") {
      gru = register_module(
          "rnn",
          torch::nn::GRU(
              torch::nn::GRUOptions(kFeatures, kFeatures).batch_first(true)));
    } else if (arguments.rnn == "lstm") {
      lstm = register_module(
          "rnn",
          torch::nn::LSTM(
              torch::nn::LSTMOptions(kFeatures, kFeatures).batch_first(true)));
    } else {
      linear = register_module("rnn", torch::nn::Linear(kFeatures, kFeatures));
    }
  }

  /// Words [sentences, length] to features [sentences, length, kFeatures].
  torch::Tensor forward(const torch::Tensor& words) {
    const auto vectors = embedding(words);
    return gru ? std::get<0>(gru(vectors))
        : lstm ? std::get<0>(lstm(vectors))
               : linear(vectors);
  }

  std::vector<torch::Tensor> rnn_parameters() {
    return named_children()["rnn"]->parameters();
  }
};
TORCH_MODULE(Net);

/// Sentences, the same on all ranks. If disjoint, each has words that no other
/// has, so no two ranks see the same word.
torch::Tensor draw_sentences(const Arguments& arguments) {
  const auto count = arguments.batch_size;
  if (!arguments.disjoint) {
    return torch::randint(kWords, {count, kLength}, torch::kLong);
  }
  const auto own = kWords / count;
  return torch::randint(own, {count, kLength}, torch::kLong) +
      (torch::arange(count) * own).unsqueeze(1);
}

void report_loss(
    int64_t step,
    const torch::Tensor& loss,
    const ddp::ProcessGroup& group) {
  const auto mean = loss.detach().clone();
  group.all_reduce(mean, ddp::ReduceOp::kMean);
  ddp::print(group, "step ", step, ": loss ", mean.item<double>());
}

/// `touched` marks the rows of the embedding that this rank has used.
void report_embedding(
    Net& net,
    const torch::Tensor& touched,
    const ddp::ProcessGroup& group) {
  const auto rank = c10::str("rank ", group.rank(), " of ", group.size());
  const auto hash = ddp::parameter_hash(*net->embedding);
  const auto rows = c10::str(touched.sum().item<int64_t>(), " of ", kWords);
  std::cout << c10::str(
                   rank, ": embedding ", hash, ", touched ", rows, " rows\n")
            << std::flush; // whole, even if others write
  ddp::verify_same_parameters(*net, group); // names the ranks that differ
  auto by_any = touched.to(group.device(), torch::kLong);
  group.all_reduce(by_any, ddp::ReduceOp::kMax);
  const auto& weight = net->embedding->weight;
  ddp::print(
      group,
      "the embeddings of all ranks are equal: norm ",
      weight.norm().item<double>(),
      ", touched ",
      by_any.sum().item<int64_t>(),
      " rows, gradients are ",
      weight.grad().is_sparse() ? "sparse" : "dense");
}

void train(const Arguments& arguments) {
  const auto group = ddp::init_process_group();
  TORCH_CHECK(
      arguments.batch_size >= group.size(),
      "a batch of ",
      arguments.batch_size,
      " sentences is too small for ",
      group.size(),
      " ranks: pass --batch-size ",
      group.size(),
      " or more");
  ddp::manual_seed(11, group);
  Net net(arguments);
  net->to(group.device());
  const auto meanings =
      torch::randn({kWords, kFeatures}).tanh().to(group.device());
  ddp::Reducer reducer(net, group);
  // Only the few places of a word in the batch add to the gradient of its row,
  // which is a mean over the batch.
  torch::optim::SGD embedding_optimizer(
      net->embedding->parameters(),
      4 * static_cast<double>(arguments.batch_size));
  torch::optim::SGD rnn_optimizer(net->rnn_parameters(), 0.5);

  auto touched = torch::zeros({kWords}, torch::kBool);
  for (int64_t step = 1; step <= arguments.steps; ++step) {
    const auto sentences = draw_sentences(arguments);
    auto words = sentences.tensor_split(group.size())[group.rank()];
    touched.index_fill_(0, words.flatten(), true);
    words = words.to(group.device());
    // Thus the mean over ranks is the batch's mean, even if shares are uneven.
    const auto share = static_cast<double>(words.numel() * group.size()) /
        static_cast<double>(sentences.numel());
    const auto loss =
        torch::mse_loss(net->forward(words), meanings.index({words})) * share;
    net->zero_grad();
    loss.backward();
    embedding_optimizer.step();
    rnn_optimizer.step();
    if (step == 1 || step == arguments.steps) {
      report_loss(step, loss, group);
    }
  }
  report_embedding(net, touched, group);
}

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Trains an embedding that all ranks share.");
  app.add_option("--rnn", arguments.rnn, "the layer after the embedding")
      ->check(CLI::IsMember({"linear", "gru", "lstm"}));
  app.add_flag(
      "--sparse",
      arguments.sparse,
      "make gradients sparse: only the touched rows are sent");
  app.add_flag(
      "--disjoint", arguments.disjoint, "give no two ranks the same word");
  app.add_option("--steps", arguments.steps)->check(CLI::PositiveNumber);
  app.add_option(
         "--batch-size",
         arguments.batch_size,
         "samples per step, over all ranks")
      ->check(CLI::Range(int64_t{1}, kWords));
  CLI11_PARSE(app, argc, argv);
  return report_errors([&] { train(arguments); });
}
