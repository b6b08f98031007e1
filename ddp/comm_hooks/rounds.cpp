#include <ddp/comm_hooks/rounds.h>

#include <ddp/internal/check.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/support/error_text.h>

#include <ATen/core/grad_mode.h>

namespace ddp::detail {
namespace {

/// Nothing runs after a failure: it would be matched with the next reduction of
/// the other ranks.
at::Tensor guarded_reduction(
    const Rounds::Reduction& reduction,
    const ProcessGroup& group) {
  check_usable(ProcessGroupImpl::of(group), "a communication hook");
  try {
    return reduction(group);
  } catch (const std::exception& error) {
    report_failure(group, error_text(error));
    throw;
  } catch (...) { // futures accept no others
    constexpr const char* kText = "an exception that is not a std::exception";
    report_failure(group, kText);
    DDP_THROW(Error, kText);
  }
}

} // namespace

Future Rounds::run(
    const at::Tensor& buffer,
    const ProcessGroup& group,
    Reduction reduction) {
  const auto its_group = connect(group);
  const auto start = future_like(buffer);
  // A callback of a future runs on a stream that waits for the value's stream.
  auto result = start->then(
      [own = its_group, reduction = std::move(reduction)](
          c10::ivalue::Future& /*future*/) -> c10::IValue {
        const at::NoGradGuard no_grad;
        return guarded_reduction(reduction, own);
      },
      c10::TensorType::get());
  if (!own_) {
    start->markCompleted(buffer);
  } else {
    if (!thread_) {
      thread_.emplace(/*pool_size=*/1);
    }
    thread_->run([start, buffer] { start->markCompleted(buffer); });
  }
  return result;
}

ProcessGroup Rounds::connect(const ProcessGroup& group) {
  const auto origin = origin_.lock();
  if (origin == group.c10d() && (origin || !own_)) {
    return own_.value_or(group);
  }
  thread_.reset(); // ends the reductions of another Reducer
  own_.reset();
  const bool has_threads = !needs_calls(ProcessGroupImpl::of(group));
  if (group.device().is_cpu() && has_threads) {
    own_ = group.duplicate();
    if (own_->c10d() == group.c10d()) { // it cannot be reconnected
      own_.reset();
    }
  }
  origin_ = Origin(group.c10d());
  return own_.value_or(group);
}

} // namespace ddp::detail
