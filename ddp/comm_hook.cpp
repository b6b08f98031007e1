#include <ddp/comm_hook.h>

#include <ddp/process_group.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace ddp {

c10::intrusive_ptr<c10::ivalue::Future> AllReduceHook::run(
    const GradBucket& bucket,
    const ProcessGroup& group) {
  if (group.size() == 1 && bucket.buffer.is_cpu()) { // it is the sum
    auto future =
        c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
    future->markCompleted(bucket.buffer);
    return future;
  }
  std::vector<at::Tensor> tensors{bucket.buffer};
  return group.c10d()->allreduce(tensors)->getFuture();
}

} // namespace ddp
