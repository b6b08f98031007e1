#include <ddp/reducer/observers/step_check.h>

#include <ddp/internal/check.h>
#include <ddp/model/tensor_contents.h>
#include <ddp/module_state.h>

#include <ATen/ATen.h>

namespace ddp::detail {

StepCheck::StepCheck(
    NamedTensors parameters,
    int64_t divergence_every,
    bool finite)
    : parameters_(std::move(parameters)),
      divergence_every_(divergence_every),
      finite_(finite) {
  DDP_CHECK_VALUE(
      divergence_every >= 0,
      "check_divergence_every must not be negative, but is {}",
      divergence_every);
}

void StepCheck::look_at(const std::string& name, const at::Tensor& gradient) {
  if (finite_ && !is_finite(count_not_finite(dense_parts(gradient)[0]))) {
    not_finite_.names.push_back(name);
    not_finite_.tensors.push_back(gradient.detach().clone());
  }
}

void StepCheck::start(
    int64_t step,
    const ProcessGroup& group,
    bool comparable) {
  const bool compare =
      comparable && divergence_every_ > 0 && step % divergence_every_ == 0;
  if (!compare && !finite_) {
    return;
  }
  uint64_t digest = 0;
  if (compare) {
    for (const auto& tensor : parameters_.tensors) {
      digest = tensor_hash(tensor, digest);
    }
  }
  message_ = at::tensor(
      {static_cast<int64_t>(!not_finite_.names.empty()),
       static_cast<int64_t>(digest),
       static_cast<int64_t>(~digest)},
      at::kLong);
  work_ = group.all_reduce_async(message_, ReduceOp::kMax);
}

void StepCheck::finish(const ProcessGroup& group) {
  if (!message_.defined()) {
    return;
  }
  work_.wait();
  const auto* message = message_.const_data_ptr<int64_t>();
  if (message[0] != 0) {
    verify_finite(not_finite_, group, "gradients");
  }
  if (message[1] != ~message[2]) {
    verify_same_values(parameters_, group, "parameters");
  }
  message_.reset();
}

} // namespace ddp::detail
