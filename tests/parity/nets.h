#pragma once

#include <tests/support/activation_checkpoint.h>
#include <tests/support/nets.h>

#include <map>

// The nets of the comparison with Python; nets.py defines the same nets, with
// the same operations in the same order.

namespace ddp::parity {

/// A net for batches of 4 rows of 48 numbers.
struct Net : test::LayeredNet {
  /// `rank` and `step` decide which parameters are used.
  virtual torch::Tensor forward(
      const torch::Tensor& x,
      int64_t rank,
      int64_t step) = 0;
};

/// Layers of uneven sizes. `width` 2707 makes one layer larger than the first
/// bucket's default cap.
struct Layers : Net {
  torch::nn::Linear first, wide, last;

  explicit Layers(int64_t width)
      : first(linear("first", 48, 97)),
        wide(linear("wide", 97, width)),
        last(linear("last", width, 7)) {}
  torch::Tensor forward(const torch::Tensor& x, int64_t, int64_t) override {
    return last(torch::relu(wide(torch::relu(first(x)))));
  }
};

/// Which branch a rank takes in a step.
enum class Turn {
  kByRank, ///< always the same branch
  kByStep, ///< all ranks take the same branch
  kAlternating, ///< some rank takes each branch
  kAtTimes, ///< two steps like kAlternating, then two in which all go left
};

/// Two branches, of which a forward pass takes one, and a layer that none uses.
struct Branches : Net {
  torch::nn::Linear stem = linear("stem", 48, 97);
  torch::nn::Linear left = linear("left", 97, 131);
  torch::nn::Linear never = linear("never", 97, 131);
  torch::nn::Linear right = linear("right", 97, 131);
  Turn turn_;

  explicit Branches(Turn turn) : turn_(turn) {}
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
  torch::nn::Linear single = linear("single", 48, 61);
  torch::nn::Linear bfloat = linear("bfloat", 61, 53);
  torch::nn::Linear half_precision = linear("half_precision", 53, 47);
  torch::nn::Linear twice = linear("twice", 47, 41);
  torch::nn::Linear last = linear("last", 41, 7);

  Dtypes() {
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
  torch::nn::Embedding table = add(
      "table",
      torch::nn::Embedding(torch::nn::EmbeddingOptions(50, 9).sparse(true)));
  torch::nn::EmbeddingBag bag =
      add("bag",
          torch::nn::EmbeddingBag(torch::nn::EmbeddingBagOptions(30, 9)
                                      .mode(torch::kSum)
                                      .sparse(true)));
  torch::nn::Linear last = linear("last", 9, 7);

  torch::Tensor forward(const torch::Tensor& x, int64_t, int64_t) override {
    const auto words = (x.abs() * 10).to(torch::kLong);
    return last(table(words.remainder(50)).mean(1) + bag(words.remainder(30)));
  }
};

/// Convolutions and batch-norm.
struct Images : Net {
  torch::nn::Conv2d first = add("first", torch::nn::Conv2d(3, 5, 2));
  torch::nn::BatchNorm2d norm = add("norm", torch::nn::BatchNorm2d(5));
  torch::nn::Conv2d second = add("second", torch::nn::Conv2d(5, 6, 2));
  torch::nn::Linear last = linear("last", 24, 7);

  explicit Images(bool channels_last) {
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
  torch::nn::Linear frozen = linear("frozen", 48, 61);
  torch::nn::Linear again = linear("again", 61, 61);
  torch::nn::Linear last = linear("last", 61, 7);

  Oddities() {
    scale = register_parameter("scale", torch::full({}, 1.5));
    nothing = register_parameter("nothing", torch::zeros({0, 3}));
    frozen->weight.set_requires_grad(false);
  }
  torch::Tensor forward(const torch::Tensor& x, int64_t, int64_t) override {
    const auto y = torch::tanh(again(torch::tanh(again(frozen(x)))));
    return last(y) * scale + nothing.sum();
  }
};

/// A checkpointed layer that is used before and after another one.
struct Checkpoints : Net {
  torch::nn::Linear first = linear("first", 48, 61);
  torch::nn::Linear again = linear("again", 61, 61);
  torch::nn::Linear middle = linear("middle", 61, 61);
  torch::nn::Linear last = linear("last", 61, 7);

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
