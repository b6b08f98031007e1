#include <ddp/comm_hooks/default_hooks.h>

#include <ddp/internal/check.h>
#include <ddp/reducer/buckets/futures.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace ddp {

CompressHook::CompressHook(
    at::ScalarType dtype,
    std::shared_ptr<CommHook> inner)
    : dtype_(dtype),
      inner_(inner ? std::move(inner) : std::make_shared<AllReduceHook>()) {
  DDP_CHECK_VALUE(
      dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kFloat ||
          dtype == at::kDouble,
      "CompressHook: {} is not half, bfloat16, float or double",
      dtype);
}

std::string CompressHook::describe() const {
  return detail::format(
      "{}({}, {})", CommHook::describe(), dtype_, inner_->describe());
}

bool CompressHook::keeps_ranks_equal() const {
  return inner_->keeps_ranks_equal();
}

c10::intrusive_ptr<c10::ivalue::Future> CompressHook::run(
    const GradBucket& bucket,
    const ProcessGroup& group) {
  if (!bucket.buffer.is_floating_point()) {
    return detail::run_inner(*inner_, bucket, group);
  }
  const auto compressed = bucket.buffer.to(dtype_);
  return detail::run_inner(*inner_, bucket.with_buffer(compressed), group)
      ->then(
          [buffer = bucket.buffer, compressed, group](
              c10::ivalue::Future& future) -> c10::IValue {
            const at::NoGradGuard no_grad; // another thread runs this
            const auto result = detail::result_for(future, compressed);
            detail::follow_default_stream(group, buffer.device());
            return at::Tensor(buffer).copy_(result.view_as(buffer));
          },
          c10::TensorType::get());
}

c10::IValue CompressHook::state_dict() const {
  return inner_->state_dict();
}

void CompressHook::load_state_dict(const c10::IValue& state) {
  inner_->load_state_dict(state);
}

c10::IValue CompressHook::rank_state_dict() const {
  return inner_->rank_state_dict();
}

void CompressHook::load_rank_state_dict(const c10::IValue& state) {
  inner_->load_rank_state_dict(state);
}

std::shared_ptr<CompressHook> fp16_compress_hook(
    std::shared_ptr<CommHook> inner) {
  return std::make_shared<CompressHook>(at::kHalf, std::move(inner));
}

std::shared_ptr<CompressHook> bf16_compress_hook(
    std::shared_ptr<CommHook> inner) {
  return std::make_shared<CompressHook>(at::kBFloat16, std::move(inner));
}

c10::intrusive_ptr<c10::ivalue::Future> NoopHook::run(
    const GradBucket& bucket,
    const ProcessGroup& /*group*/) {
  return detail::completed_future(bucket.buffer);
}

} // namespace ddp
