#include <ddp/internal/forward_state.h>

#include <ddp/failure/heartbeat.h>
#include <ddp/reducer/core/target_state.h>
#include <ddp/reducer/reducer_impl.h>

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>

namespace ddp::detail {

ForwardState::ForwardState(
    std::shared_ptr<torch::nn::Module> module,
    const ProcessGroup& group,
    const ReducerOptions& options)
    : module_(std::move(module)),
      reducer_(ReducerImpl::make_wrapped(module_, group, options)),
      buffers_(ReducerTarget(module_).state(options).buffers),
      group_(
          options.broadcast_buffers() && !options.share_communicator() &&
                  // A wrapper without init_sync does not compare buffers.
                  !(options.init_sync() && buffers_().tensors.empty())
              ? group.duplicate()
              : group),
      buffer_sync_(options.buffer_sync()),
      broadcasts_buffers_(options.broadcast_buffers() && group_.c10d()) {
  const auto parameters = module_->parameters();
  const auto on_device = [this](const at::Tensor& parameter) {
    return parameter.device() == group_.device();
  };
  first_parameter_ = parameters.front(); // the Reducer also requires one
  if (options.move_inputs() &&
      std::all_of(parameters.begin(), parameters.end(), on_device)) {
    input_device_ = group_.device();
  }
  auto& participation = ReducerImpl::of(reducer_).participation;
  participation.forward_main_hook = [this](int64_t root) {
    broadcast_tensors(buffers_().tensors, group_, root);
  };
  participation.after_join = [this] { sync_next_ = true; };
}

void ForwardState::begin() {
  if (gradients_will_follow()) {
    ReducerImpl::of(reducer_).observers.recorder.forward_began();
  }
  const bool sync = buffer_sync_ == BufferSync::kPython
      ? sync_next_
      : gradients_will_follow();
  const bool gives_buffers = sync && broadcasts_buffers_;
  const auto root =
      ReducerImpl::of(reducer_).participation.notify_forward(gives_buffers);
  if (gives_buffers) {
    const heartbeat::Activity activity("forward");
    broadcast_tensors(buffers_().tensors, group_, root);
  }
}

// Also after an exception, unlike in Python: ranks then agree on the next
// broadcast even if only some of them threw.
void ForwardState::end() noexcept {
  auto& reducer = ReducerImpl::of(reducer_);
  sync_next_ = gradients_will_follow();
  if (at::GradMode::is_enabled() && !sync_next_) {
    reducer.synchronization.forward_came(false);
  }
  reducer.observers.recorder.forward_ended();
}

bool ForwardState::gradients_will_follow() const {
  return at::GradMode::is_enabled() && reducer_.synchronizes();
}

void ForwardState::anchor(const OutputAnchors& outputs) {
  ReducerImpl::of(reducer_).anchor(outputs);
}

void ForwardState::anchor_unseen() {
  ReducerImpl::of(reducer_).synchronization.decide_in_backward();
}

} // namespace ddp::detail
