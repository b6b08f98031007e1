#include <ddp/comm_hook.h>

#include <ddp/internal/check.h>
#include <ddp/process_group.h>
#include <ddp/reducer/buckets/futures.h>

#include <ATen/ATen.h>
#include <c10/util/Type.h>

#include <typeinfo>

namespace ddp {

GradBucket GradBucket::with_buffer(const at::Tensor& other) const {
  auto result = *this;
  result.buffer = other;
  const auto shift = other.storage_offset() - buffer.storage_offset();
  for (auto& gradient : result.gradients) {
    gradient = other.as_strided(
        gradient.sizes(),
        gradient.strides(),
        gradient.storage_offset() + shift);
  }
  return result;
}

std::string CommHook::describe() const {
  return c10::demangle(typeid(*this).name());
}

ProcessGroup CommHook::connect(const ProcessGroup& group) {
  return group;
}

c10::IValue CommHook::state_dict() const {
  return {};
}

void CommHook::load_state_dict(const c10::IValue& state) {
  DDP_CHECK_VALUE(
      state.isNone(),
      "load_state_dict: this communication hook has no state, but the saved "
      "run's hook had one");
}

c10::IValue CommHook::rank_state_dict() const {
  return {};
}

void CommHook::load_rank_state_dict(const c10::IValue& state) {
  CommHook::load_state_dict(state);
}

c10::intrusive_ptr<c10::ivalue::Future> AllReduceHook::run(
    const GradBucket& bucket,
    const ProcessGroup& group) {
  return detail::all_reduce(bucket.buffer, group);
}

} // namespace ddp
