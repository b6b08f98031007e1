#pragma once

#include <torch/torch.h>

namespace ddp::test {

/// A table of words and, in some forwards, a bag of them, both with sparse
/// gradients.
struct WordNetImpl : torch::nn::Module {
  torch::nn::Embedding table{nullptr};
  torch::nn::EmbeddingBag bag{nullptr};
  torch::nn::Linear head{nullptr};

  WordNetImpl() {
    table = register_module(
        "table",
        torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 3).sparse(true)));
    bag = register_module(
        "bag",
        torch::nn::EmbeddingBag(
            torch::nn::EmbeddingBagOptions(6, 3).sparse(true).mode(
                torch::kSum)));
    head = register_module("head", torch::nn::Linear(3, 2));
  }
  torch::Tensor forward(const torch::Tensor& words, bool with_bag) {
    auto x = table(words);
    if (with_bag) {
      x = x + bag(words.remainder(6).unsqueeze(0));
    }
    return head(x);
  }
};
TORCH_MODULE(WordNet);

} // namespace ddp::test
