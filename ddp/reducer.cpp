#include <ddp/reducer.h>

#include <ddp/detail/reducer_impl.h>
#include <ddp/module_state.h>
#include <ddp/verification.h>

#include <torch/nn/module.h>

// How it works
//
// LibTorch's autograd ends in one AccumulateGrad node per parameter. A hook on
// each runs when the parameter's gradient of this backward is complete. It puts
// the gradient into its slice of a bucket, scaled by 1/size, and counts. The
// hook that completes a bucket starts the bucket's all-reduce, which goes on
// beside backward; buckets start in order, since the ranks' collectives must
// match. The first hook of a backward asks the engine to call `finish` at the
// end: it contributes for parameters whose hook did not run, waits for the
// buckets, and hands the slices out as gradients.

namespace ddp {
namespace {

std::string describe(const ReducerOptions& options) {
  return c10::str(
      "bucket_cap_mb ",
      options.bucket_cap_mb() ? std::to_string(*options.bucket_cap_mb())
                              : "default",
      ", broadcast_buffers ",
      options.broadcast_buffers());
}

NamedTensors number(const std::vector<at::Tensor>& parameters) {
  NamedTensors result;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& tensor = parameters[i];
    TORCH_CHECK_VALUE(
        tensor.defined() && tensor.is_leaf() && tensor.requires_grad(),
        "parameter ",
        i,
        " is not a leaf tensor that requires a gradient");
    result.names.push_back(std::to_string(i));
    result.tensors.push_back(tensor);
  }
  return result;
}

/// Gives all ranks rank 0's values of `state`, once they are known to agree in
/// everything else.
void synchronize(
    const NamedTensors& state,
    const ReducerOptions& options,
    const ProcessGroup& group) {
  if (options.init_sync()) {
    verify_same_model(state, describe(options), group);
    broadcast_tensors(state.tensors, group);
  }
}

} // namespace

Reducer::Reducer(
    const std::shared_ptr<torch::nn::Module>& module,
    const ProcessGroup& group,
    const ReducerOptions& options) {
  TORCH_CHECK_VALUE(module, "Reducer: the module is null");
  const auto own_group = group.duplicate();
  synchronize(unique_state(*module), options, own_group);
  impl_ = std::make_shared<Impl>(
      unique_parameters(*module, /*include_frozen=*/false), own_group, options);
}

Reducer::Reducer(
    const std::vector<at::Tensor>& parameters,
    const ProcessGroup& group,
    const ReducerOptions& options) {
  const auto named = number(parameters);
  const auto own_group = group.duplicate();
  synchronize(named, options, own_group);
  impl_ = std::make_shared<Impl>(named, own_group, options);
}

Reducer::Reducer(Reducer&&) noexcept = default;

Reducer& Reducer::operator=(Reducer&& other) noexcept {
  if (this != &other) {
    if (impl_) {
      impl_->detach();
    }
    impl_ = std::move(other.impl_);
  }
  return *this;
}

// A guard may outlive the Reducer and keep its state alive, but not its hooks.
Reducer::~Reducer() {
  if (impl_) {
    impl_->detach();
  }
}

Reducer::NoSyncGuard::NoSyncGuard(std::shared_ptr<Impl> impl)
    : impl_(std::move(impl)) {
  ++impl_->no_sync_depth;
}

Reducer::NoSyncGuard::~NoSyncGuard() {
  if (impl_) {
    --impl_->no_sync_depth;
  }
}

Reducer::NoSyncGuard Reducer::no_sync() {
  return NoSyncGuard(impl_);
}

bool Reducer::synchronizes() const {
  return impl_->no_sync_depth == 0;
}

std::vector<BucketIndices> Reducer::buckets() const {
  return impl_->bucket_indices();
}

} // namespace ddp
