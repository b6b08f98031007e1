#pragma once

#include <tests/support/catch.h>

#include <ddp/comm_hook.h>
#include <ddp/ddp.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace ddp::test {

using Future = c10::intrusive_ptr<c10::ivalue::Future>;

/// A future that is already complete.
inline Future completed(const c10::IValue& value) {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::AnyType::get());
  future->markCompleted(value);
  return future;
}

/// The pending sum over ranks.
inline Future sum(const at::Tensor& tensor, const ProcessGroup& group) {
  std::vector<at::Tensor> tensors{tensor};
  return group.c10d()->allreduce(tensors)->getFuture();
}

/// A hook that calls the test's function.
struct CustomHook : CommHook {
  using Function =
      std::function<Future(const GradBucket&, const ProcessGroup&)>;

  explicit CustomHook(Function function) : function_(std::move(function)) {}

  Future run(const GradBucket& bucket, const ProcessGroup& group) override {
    return function_(bucket, group);
  }

 private:
  Function function_;
};

inline std::shared_ptr<CommHook> custom(CustomHook::Function function) {
  return std::make_shared<CustomHook>(std::move(function));
}

/// A hook that multiplies this rank's gradients by `factor`.
inline std::shared_ptr<CommHook> times(double factor) {
  return custom([factor](const GradBucket& bucket, const ProcessGroup&) {
    return completed(bucket.buffer * factor); // a new tensor
  });
}

using Hooks = std::vector<std::shared_ptr<CommHook>>;

inline std::shared_ptr<HookChain> chain_of(const Hooks& hooks) {
  return std::make_shared<HookChain>(hooks);
}

inline ReducerOptions with_hook(std::shared_ptr<CommHook> hook) {
  return ReducerOptions().comm_hook(std::move(hook));
}

} // namespace ddp::test
