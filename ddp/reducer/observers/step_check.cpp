#include <ddp/reducer/observers/step_check.h>

#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/model/tensor_contents.h>
#include <ddp/module_state.h>

#include <ATen/ATen.h>

namespace ddp::detail {

StepCheck::StepCheck(
    NamedTensors parameters,
    const ProcessGroup& group,
    int64_t divergence_every,
    bool finite)
    : parameters_(std::move(parameters)),
      group_(group),
      divergence_every_(divergence_every),
      finite_(finite) {
  DDP_CHECK_VALUE(
      divergence_every >= 0,
      "check_divergence_every must not be negative, but is {}",
      divergence_every);
}

void StepCheck::on_own_gradient(
    const ParameterState& parameter,
    const at::Tensor& gradient) {
  if (finite_ && !is_finite(count_not_finite(dense_parts(gradient)[0]))) {
    not_finite_.names.push_back(parameter.name());
    not_finite_.tensors.push_back(gradient.detach().clone());
  }
}

void StepCheck::on_all_launched(const Reduction& reduction) {
  const bool compare = reduction.of_all && divergence_every_ > 0 &&
      reduction.step % divergence_every_ == 0;
  if (!compare && !finite_) {
    return;
  }
  uint64_t checksum = 0;
  if (compare) {
    for (const auto& tensor : parameters_.tensors) {
      checksum = tensor_hash(tensor, checksum);
    }
  }
  message_ = at::tensor(
      {static_cast<int64_t>(!not_finite_.names.empty()),
       static_cast<int64_t>(checksum),
       static_cast<int64_t>(~checksum)},
      at::kLong);
  work_ = group_.all_reduce_async(message_, ReduceOp::kMax);
}

void StepCheck::on_reduced() {
  if (!message_.defined()) {
    return;
  }
  work_.wait();
  const auto* message = message_.const_data_ptr<int64_t>();
  if (message[0] != 0) {
    const heartbeat::Activity activity("check_finite");
    verify_finite(not_finite_, group_, "gradients");
  }
  if (message[1] != ~message[2]) {
    const heartbeat::Activity activity("check_divergence_every");
    verify_same_values(parameters_, group_, "parameters");
  }
  message_.reset();
}

void StepCheck::on_failed() {
  not_finite_ = {};
  message_.reset();
}

} // namespace ddp::detail
