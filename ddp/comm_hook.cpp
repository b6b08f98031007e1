#include <ddp/comm_hook.h>

#include <ddp/process_group.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace ddp {

c10::intrusive_ptr<c10::ivalue::Future> AllReduceHook::run(
    const GradBucket& bucket,
    const ProcessGroup& group) {
  std::vector<at::Tensor> tensors{bucket.buffer};
  return group.c10d()->allreduce(tensors)->getFuture();
}

} // namespace ddp
