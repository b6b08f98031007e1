#pragma once

#include <tests/support/activation_checkpoint.h>

#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

// The nets of the comparison with Python; nets.py has the same, with the same
// operations in the same order.

namespace ddp::parity {

/// A net for batches of 4 rows of 48 numbers.
struct Net : torch::nn::Module {
  /// `rank` and `step` decide which parameters are used.
  virtual torch::Tensor forward(
      const torch::Tensor& x,
      int64_t rank,
      int64_t step) = 0;
};

/// Layers of uneven sizes. `width` 2707 makes one larger than the first
/// bucket's default cap.
struct Layers : Net {
  torch::nn::Linear first{nullptr}, wide{nullptr}, last{nullptr};

  explicit Layers(int64_t width) {
    first = register_module("first", torch::nn::Linear(48, 97));
    wide = register_module("wide", torch::nn::Linear(97, width));
    last = register_module("last", torch::nn::Linear(width, 7));
  }
  torch::Tensor forward(const torch::Tensor& x, int64_t, int64_t) override {
    return last(torch::relu(wide(torch::relu(first(x)))));
  }
};

/// Which branch a rank takes in a step.
enum class Turn {
  kByRank, ///< always the same
  kByStep, ///< all take the same
  kAlternating, ///< each is taken by some rank
  kAtTimes, ///< each by some rank in two steps, then two in which all go left
};

/// Two branches, of which a forward takes one, and a layer that none takes.
struct Branches : Net {
  torch::nn::Linear stem{nullptr}, left{nullptr}, never{nullptr},
      right{nullptr};
  Turn turn_;

  explicit Branches(Turn turn) : turn_(turn) {
    stem = register_module("stem", torch::nn::Linear(48, 97));
    left = register_module("left", torch::nn::Linear(97, 131));
    never = register_module("never", torch::nn::Linear(97, 131));
    right = register_module("right", torch::nn::Linear(97, 131));
  }
  torch::Tensor forward(const torch::Tensor& x, int64_t rank, int64_t step)
      override {
    const int64_t choice = (turn_ == Turn::kByStep ? 0 : rank) +
        (turn_ == Turn::kByRank ? 0 : step);
    const bool all_left = turn_ == Turn::kAtTimes && step % 4 >= 2;
    const auto y = torch::relu(stem(x));
    return all_left || choice % 2 == 0 ? left(y) : right(y);
  }
};

/// A layer of each floating-point dtype.
struct Dtypes : Net {
  torch::nn::Linear single{nullptr}, bfloat{nullptr}, half_precision{nullptr},
      twice{nullptr}, last{nullptr};

  Dtypes() {
    single = register_module("single", torch::nn::Linear(48, 61));
    bfloat = register_module("bfloat", torch::nn::Linear(61, 53));
    half_precision =
        register_module("half_precision", torch::nn::Linear(53, 47));
    twice = register_module("twice", torch::nn::Linear(47, 41));
    last = register_module("last", torch::nn::Linear(41, 7));
    bfloat->to(torch::kBFloat16);
    half_precision->to(torch::kHalf);
    twice->to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x, int64_t, int64_t) override {
    auto y = torch::relu(single(x));
    y = torch::relu(bfloat(y.to(torch::kBFloat16)));
    y = torch::relu(half_precision(y.to(torch::kHalf)));
    y = torch::relu(twice(y.to(torch::kDouble)));
    return last(y.to(torch::kFloat));
  }
};

/// Embeddings with sparse gradients.
struct Words : Net {
  torch::nn::Embedding table{nullptr};
  torch::nn::EmbeddingBag bag{nullptr};
  torch::nn::Linear last{nullptr};

  Words() {
    table = register_module(
        "table",
        torch::nn::Embedding(torch::nn::EmbeddingOptions(50, 9).sparse(true)));
    bag = register_module(
        "bag",
        torch::nn::EmbeddingBag(torch::nn::EmbeddingBagOptions(30, 9)
                                    .mode(torch::kSum)
                                    .sparse(true)));
    last = register_module("last", torch::nn::Linear(9, 7));
  }
  torch::Tensor forward(const torch::Tensor& x, int64_t, int64_t) override {
    const auto words = (x.abs() * 10).to(torch::kLong);
    return last(table(words.remainder(50)).mean(1) + bag(words.remainder(30)));
  }
};

/// Convolutions and batch-norm.
struct Images : Net {
  torch::nn::Conv2d first{nullptr}, second{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear last{nullptr};

  explicit Images(bool channels_last) {
    first = register_module(
        "first", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 5, 2)));
    norm = register_module("norm", torch::nn::BatchNorm2d(5));
    second = register_module(
        "second", torch::nn::Conv2d(torch::nn::Conv2dOptions(5, 6, 2)));
    last = register_module("last", torch::nn::Linear(24, 7));
    for (const auto& conv : {first, second}) {
      if (channels_last) {
        conv->weight.set_data(
            conv->weight.data().contiguous(at::MemoryFormat::ChannelsLast));
      }
    }
  }
  torch::Tensor forward(const torch::Tensor& x, int64_t, int64_t) override {
    const auto y = torch::relu(norm(first(x.view({4, 3, 4, 4}))));
    return last(torch::relu(second(y)).flatten(1));
  }
};

/// Parameters without dimensions, without elements and without a gradient, and
/// a layer that is used twice.
struct Oddities : Net {
  torch::Tensor scale, nothing;
  torch::nn::Linear frozen{nullptr}, again{nullptr}, last{nullptr};

  Oddities() {
    scale = register_parameter("scale", torch::full({}, 1.5));
    nothing = register_parameter("nothing", torch::zeros({0, 3}));
    frozen = register_module("frozen", torch::nn::Linear(48, 61));
    again = register_module("again", torch::nn::Linear(61, 61));
    last = register_module("last", torch::nn::Linear(61, 7));
    frozen->weight.set_requires_grad(false);
  }
  torch::Tensor forward(const torch::Tensor& x, int64_t, int64_t) override {
    const auto y = torch::tanh(again(torch::tanh(again(frozen(x)))));
    return last(y) * scale + nothing.sum();
  }
};

/// A checkpointed layer that is used before and after another one.
struct Checkpoints : Net {
  torch::nn::Linear first{nullptr}, again{nullptr}, middle{nullptr},
      last{nullptr};

  Checkpoints() {
    first = register_module("first", torch::nn::Linear(48, 61));
    again = register_module("again", torch::nn::Linear(61, 61));
    middle = register_module("middle", torch::nn::Linear(61, 61));
    last = register_module("last", torch::nn::Linear(61, 7));
  }
  torch::Tensor forward(const torch::Tensor& x, int64_t, int64_t) override {
    const auto segment = [layer = again](const torch::Tensor& input) mutable {
      return torch::tanh(layer(input));
    };
    const auto y = test::checkpoint(torch::tanh(first(x)), segment);
    return last(test::checkpoint(torch::tanh(middle(y)), segment));
  }
};

inline std::shared_ptr<Net> make_net(const std::string& name) {
  const std::map<std::string, std::function<std::shared_ptr<Net>()>> nets = {
      {"layers", [] { return std::make_shared<Layers>(2707); }},
      {"narrow-layers", [] { return std::make_shared<Layers>(211); }},
      {"branches-by-rank",
       [] { return std::make_shared<Branches>(Turn::kByRank); }},
      {"branches-by-step",
       [] { return std::make_shared<Branches>(Turn::kByStep); }},
      {"alternating-branches",
       [] { return std::make_shared<Branches>(Turn::kAlternating); }},
      {"branches-at-times",
       [] { return std::make_shared<Branches>(Turn::kAtTimes); }},
      {"dtypes", [] { return std::make_shared<Dtypes>(); }},
      {"words", [] { return std::make_shared<Words>(); }},
      {"images", [] { return std::make_shared<Images>(false); }},
      {"channels-last-images", [] { return std::make_shared<Images>(true); }},
      {"checkpoints", [] { return std::make_shared<Checkpoints>(); }},
      {"oddities", [] { return std::make_shared<Oddities>(); }}};
  return nets.at(name)();
}

} // namespace ddp::parity
