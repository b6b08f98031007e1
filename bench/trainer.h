#pragma once

#include <bench/c10d_reducer.h>
#include <bench/nets.h>
#include <ddp/reducer.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <optional>
#include <string>

namespace bench {

/// What is trained, and how.
struct Task {
  std::string net;
  /// Backwards in a step, of which the last alone communicates.
  int64_t micro_batches = 1;

  bool has_unused() const {
    return net == "mlp200_unused";
  }
};

/// The training loop of a LibTorch user: on its own, with a `ddp::Reducer`
/// attached, or with LibTorch's c10d::Reducer around its forward.
class Trainer {
 public:
  explicit Trainer(const Task& task)
      : task_(task),
        net_(make_net(task.net)),
        optimizer_(net_.module->parameters(), 1e-6) {}

  /// Collective.
  void attach(const ddp::ProcessGroup& group) {
    reducer_.emplace(net_.module, group);
  }

  /// Without its option gradient_as_bucket_view: LibTorch's `zero_grad()`
  /// throws at the views that it makes. Collective.
  void attach_c10d(const ddp::ProcessGroup& group) {
    c10d_reducer_ = std::make_unique<bench::C10dReducer>(
        *net_.module,
        group,
        ddp::ReducerOptions().find_unused_parameters(task_.has_unused()));
  }

  void step() {
    optimizer_.zero_grad();
    for (int64_t i = 1; i < task_.micro_batches; ++i) {
      std::optional<ddp::Reducer::NoSyncGuard> guard;
      if (reducer_) {
        guard.emplace(reducer_->no_sync());
      }
      backward(net_.forward(net_.input));
    }
    const auto forward = [this] { return net_.forward(net_.input); };
    backward(c10d_reducer_ ? c10d_reducer_->forward(forward) : forward());
    optimizer_.step();
  }

  const Net& net() const {
    return net_;
  }

 private:
  void backward(const torch::Tensor& output) const {
    (output.pow(2).mean() / static_cast<double>(task_.micro_batches))
        .backward();
  }

  Task task_;
  Net net_;
  torch::optim::SGD optimizer_;
  std::optional<ddp::Reducer> reducer_;
  std::unique_ptr<bench::C10dReducer> c10d_reducer_;
};

} // namespace bench
