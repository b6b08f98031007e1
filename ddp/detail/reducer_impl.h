#pragma once

#include <ddp/bucket.h>
#include <ddp/module_state.h>
#include <ddp/reducer.h>

#include <torch/csrc/autograd/function.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace ddp {

struct Reducer::Impl {
 public:
  Impl(NamedTensors parameters, ProcessGroup group, ReducerOptions options);
  ~Impl();

  /// Removes the hooks.
  void detach();

  /// Called by autograd when the gradient of parameter `index` is complete.
  void on_gradient(size_t index);

  std::vector<BucketIndices> bucket_indices() const;

  int64_t no_sync_depth = 0;

 private:
  enum class Share {
    kPending, ///< nothing yet
    kUnscaled, ///< the gradient, which lies in the slice itself
    kScaled, ///< a copy of the gradient, scaled
    kNothing, ///< this rank has no gradient
  };

  struct Parameter {
    at::Tensor tensor;
    std::string name;
    /// Held because a tensor holds its AccumulateGrad node weakly.
    std::shared_ptr<torch::autograd::Node> accumulator;
    uintptr_t hook = 0;
    size_t bucket = 0;
    /// This parameter's slice of its bucket.
    at::Tensor view;
    /// What the slice holds in this backward.
    Share share = Share::kPending;
  };

  /// Whether the gradient is the parameter's slice of its bucket.
  static bool lies_in_slice(const Parameter& parameter);

  void attach();
  void build_buckets(std::vector<BucketIndices> indices);
  void agree_on_order();
  void rebuild_buckets();
  void begin();
  void contribute(size_t index);
  void copy_or_keep(Parameter& parameter);
  void launch(Bucket& bucket);
  void scale(Bucket& bucket);
  void mark_absent(Bucket& bucket);
  void contribute_rest();
  void finish();

  std::mutex mutex_; // GPUs have a backward thread each
  std::vector<Parameter> parameters_;
  std::vector<Bucket> buckets_;
  ProcessGroup group_;
  ReducerOptions options_;
  at::Tensor factor_;
  /// The order in which gradients came, for rebuilding the buckets.
  std::vector<size_t> ready_order_;
  at::Tensor order_;
  Work order_work_;
  bool rebuilt_ = false;
  /// From the first gradient of a backward until its end, the id of that
  /// backward; else -1.
  int backward_ = -1;
  /// The next bucket to launch.
  size_t next_ = 0;
};

} // namespace ddp
