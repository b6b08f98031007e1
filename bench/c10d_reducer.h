#pragma once

#include <ddp/process_group.h>
#include <ddp/reducer_options.h>

#include <torch/csrc/autograd/engine.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace bench {

/// LibTorch's own Reducer, driven as Python's DistributedDataParallel drives
/// it: the oracle of tests and the peer of benchmarks. Knows the options about
/// buckets, views, unused parameters and static graphs; the ranks' nets must be
/// equal.
class C10dReducer {
 public:
  C10dReducer(
      const torch::nn::Module& net,
      const ddp::ProcessGroup& group,
      const ddp::ReducerOptions& options)
      : finds_unused_(
            options.find_unused_parameters() && !options.static_graph()),
        delays_(options.static_graph()) {
    add_parameters(net);
    reducer_ = std::make_shared<c10d::Reducer>(
        parameters_,
        initial_buckets(options),
        group.c10d(),
        sparse_,
        cap(options),
        options.find_unused_parameters(),
        options.gradient_as_bucket_view(),
        std::unordered_map<size_t, std::string>(),
        first_cap(options),
        options.skip_all_reduce_unused_params(),
        /*use_python_reducer=*/false,
        bytes(options.bucket_cap_mb_list()));
    // Without one it crashes where the used parameters change.
    logger_ = std::make_shared<c10d::Logger>(reducer_);
    reducer_->set_logger(logger_);
    if (options.static_graph()) {
      reducer_->set_static_graph();
    }
  }

  /// Calls `function` for a forward after which backward reduces.
  template <typename Function>
  at::Tensor forward(const Function& function) {
    reducer_->prepare_for_forward();
    reducer_->rebuild_buckets();
    at::Tensor output = function();
    if (finds_unused_) {
      reducer_->prepare_for_backward({output});
    } else {
      reducer_->prepare_for_backward({});
    }
    if (std::exchange(delays_, false)) {
      output.register_hook([this](const at::Tensor&) {
        torch::autograd::Engine::get_default_engine().queue_callback(
            [this] { reducer_->delay_all_reduce(); });
      });
    }
    return output;
  }

 private:
  void add_parameters(const torch::nn::Module& net) {
    for (const auto& module : net.modules()) {
      const auto* table = module->as<torch::nn::EmbeddingImpl>();
      const auto* bag = module->as<torch::nn::EmbeddingBagImpl>();
      for (const auto& parameter : module->parameters(/*recurse=*/false)) {
        if (parameter.requires_grad()) {
          parameters_.push_back(parameter);
          sparse_.push_back(
              (table && table->options.sparse()) ||
              (bag && bag->options.sparse()));
        }
      }
    }
  }

  static std::vector<int64_t> bytes(const std::vector<double>& mebibytes) {
    std::vector<int64_t> result;
    for (const double cap : mebibytes) {
      result.push_back(static_cast<int64_t>(cap * (1 << 20)));
    }
    return result;
  }

  static int64_t cap(const ddp::ReducerOptions& options) {
    return bytes({options.bucket_cap_mb().value_or(25)}).front();
  }

  static int64_t first_cap(const ddp::ReducerOptions& options) {
    const double fallback = options.bucket_cap_mb().value_or(1);
    return bytes({options.first_bucket_cap_mb().value_or(fallback)}).front();
  }

  std::vector<std::vector<size_t>> initial_buckets(
      const ddp::ReducerOptions& options) const {
    std::vector<size_t> limits;
    for (const auto limit : bytes(options.bucket_cap_mb_list())) {
      limits.push_back(static_cast<size_t>(limit));
    }
    if (limits.empty() && finds_unused_) {
      limits = {
          static_cast<size_t>(first_cap(options)),
          static_cast<size_t>(cap(options))};
    } else if (limits.empty()) {
      limits = {std::numeric_limits<size_t>::max()};
    }
    auto [buckets, unused] =
        c10d::compute_bucket_assignment_by_size(parameters_, limits, sparse_);
    std::reverse(buckets.begin(), buckets.end());
    return buckets;
  }

  const bool finds_unused_;
  /// Whether the next backward is a static graph's first.
  bool delays_;
  std::vector<at::Tensor> parameters_;
  std::vector<bool> sparse_;
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;
};

} // namespace bench
