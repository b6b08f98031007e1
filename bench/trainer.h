#pragma once

#include <bench/c10d_reducer.h>
#include <bench/nets.h>
#include <ddp/amp.h>
#include <ddp/reducer.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <optional>
#include <string>

namespace bench {

/// A net, and the settings of its training.
struct Task {
  std::string net;
  /// The number of backward passes in a step; only the last one communicates.
  int64_t micro_batches = 1;
  c10::Device device{c10::kCPU};
  /// Whether forward runs under autocast to bfloat16.
  bool bf16 = false;
};

/// The training loop of a LibTorch user: alone, with a `ddp::Reducer` attached,
/// or with LibTorch's c10d::Reducer around the forward pass.
class Trainer {
 public:
  explicit Trainer(Task task)
      : task_(std::move(task)), net_(make_net(task_.net)) {
    net_.module->to(task_.device);
    net_.input = net_.input.to(task_.device);
    optimize_by<torch::optim::SGD>(/*momentum=*/0);
  }

  /// Collective.
  void attach(const ddp::ProcessGroup& group) {
    reducer_.emplace(net_.module, group);
  }

  /// `views` turns on gradient_as_bucket_view, with which `zero_grad()` of
  /// LibTorch's optimizers throws. Collective.
  void attach_c10d(const ddp::ProcessGroup& group, bool views = false) {
    c10d_reducer_ = std::make_unique<C10dReducer>(
        *net_.module,
        group,
        ddp::ReducerOptions()
            .find_unused_parameters(task_.net == "mlp200_unused")
            .gradient_as_bucket_view(views));
  }

  /// Makes steps end with a step of `SGD`; by default, LibTorch's without
  /// momentum.
  template <typename SGD>
  void optimize_by(double momentum) {
    optimizer_ = std::make_unique<SGD>(
        net_.module->parameters(),
        torch::optim::SGDOptions(/*lr=*/1e-6).momentum(momentum));
  }

  /// Makes steps end with the backward pass.
  void drop_optimizer() {
    optimizer_ = nullptr;
  }

  void step() {
    zero_grad();
    compute();
  }

  void zero_grad() {
    if (optimizer_) {
      optimizer_->zero_grad();
    } else {
      net_.module->zero_grad();
    }
  }

  /// Runs the part of a step after zero_grad().
  void compute() {
    for (int64_t i = 1; i < task_.micro_batches; ++i) {
      std::optional<ddp::Reducer::NoSyncGuard> guard;
      if (reducer_) {
        guard.emplace(reducer_->no_sync());
      }
      backward(forward());
    }
    backward(
        c10d_reducer_ ? c10d_reducer_->forward([this] { return forward(); })
                      : forward());
    if (optimizer_) {
      optimizer_->step();
    }
  }

  const Net& net() const {
    return net_;
  }

 private:
  torch::Tensor forward() const {
    std::optional<ddp::AutocastGuard> autocast;
    if (task_.bf16) {
      autocast.emplace(task_.device.type(), c10::kBFloat16);
    }
    return net_.forward(net_.input);
  }

  void backward(const torch::Tensor& output) const {
    auto loss = output.to(c10::kFloat).pow(2).mean();
    if (task_.micro_batches > 1) {
      loss = loss / static_cast<double>(task_.micro_batches);
    }
    loss.backward();
  }

  Task task_;
  Net net_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::optional<ddp::Reducer> reducer_;
  std::unique_ptr<C10dReducer> c10d_reducer_;
};

} // namespace bench
