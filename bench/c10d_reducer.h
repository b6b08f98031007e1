#pragma once

#include <ddp/process_group.h>
#include <ddp/reducer_options.h>

#include <torch/nn/module.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace bench {

/// LibTorch's Reducer, called as Python's DistributedDataParallel calls it.
/// Supports the options `find_unused_parameters` and `gradient_as_bucket_view`;
/// all parameters are trained, and the ranks' nets must be equal.
class C10dReducer {
 public:
  C10dReducer(
      const torch::nn::Module& net,
      const ddp::ProcessGroup& group,
      const ddp::ReducerOptions& options)
      : finds_unused_(options.find_unused_parameters()) {
    const auto parameters = net.parameters();
    const std::vector<bool> sparse(parameters.size(), false);
    auto limits = finds_unused_
        ? std::vector<size_t>{kFirstBytes, kBucketBytes}
        : std::vector<size_t>{std::numeric_limits<size_t>::max()};
    auto [buckets, unused] =
        c10d::compute_bucket_assignment_by_size(parameters, limits, sparse);
    std::reverse(buckets.begin(), buckets.end());
    reducer_ = std::make_shared<c10d::Reducer>(
        parameters,
        std::move(buckets),
        group.c10d(),
        sparse,
        kBucketBytes,
        finds_unused_,
        options.gradient_as_bucket_view(),
        /*param_names=*/std::unordered_map<size_t, std::string>(),
        kFirstBytes,
        /*skip_all_reduce_unused_params=*/false,
        /*use_python_reducer=*/false,
        /*bucket_bytes_cap_list=*/std::vector<int64_t>());
    // Without a logger, c10d's Reducer crashes if the used parameters change.
    logger_ = std::make_shared<c10d::Logger>(reducer_);
    reducer_->set_logger(logger_);
  }

  /// Calls `function` as the forward pass before a backward pass that reduces.
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
    return output;
  }

 private:
  // The defaults of Python's DistributedDataParallel.
  static constexpr int64_t kFirstBytes = int64_t{1} << 20;
  static constexpr int64_t kBucketBytes = int64_t{25} << 20;

  const bool finds_unused_;
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;
};

} // namespace bench
