#include <ddp/backends/mpi/staging/staging.h>

#include <ddp/internal/check.h>

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty_strided.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include <vector>

namespace ddp::backends::mpi {
namespace {

/// Whether MPI can send and receive GPU memory.
bool cuda_aware() {
#ifdef MPIX_CUDA_AWARE_SUPPORT
  static const bool aware = MPIX_Query_cuda_support() == 1;
  return aware;
#else
  return false;
#endif
}

at::Tensor pinned_like(const at::Tensor& tensor) {
  return at::empty_strided(
      tensor.sizes(),
      tensor.strides(),
      tensor.options().device(at::kCPU).pinned_memory(true));
}

} // namespace

struct Staging::Cuda {
  explicit Cuda(at::Device its_device)
      : device(its_device),
        side(c10::cuda::getStreamFromPool(
            /*isHighPriority=*/false,
            its_device.index())) {}

  struct Output {
    at::Tensor host;
    at::Tensor device;
  };

  at::Device device;
  c10::cuda::CUDAStream side;
  std::vector<Output> outputs;
  at::cuda::CUDAEvent inputs_ready;
  at::cuda::CUDAEvent outputs_ready;
};

at::Tensor Staging::input(const at::Tensor& tensor) {
  DDP_CHECK_VALUE(
      tensor.is_cpu() || tensor.is_cuda(),
      "backend mpi supports tensors on the CPU or a CUDA GPU, but got a tensor "
      "on {}",
      tensor.device());
  if (!cuda_ && tensor.is_cuda()) {
    cuda_ = std::make_shared<Cuda>(tensor.device());
  }
  DDP_CHECK_VALUE(
      !cuda_ || tensor.device() == cuda_->device,
      "backend mpi: tensors must be on the same device, but are on {} and {}",
      cuda_->device,
      tensor.device());
  if (!cuda_ || (messages_ && cuda_aware())) {
    return tensor;
  }
  auto host = pinned_like(tensor);
  host.copy_(tensor, /*non_blocking=*/true);
  return host;
}

at::Tensor Staging::output(const at::Tensor& tensor) {
  // Also copied to the host: elements that MPI does not write keep their
  // values.
  auto host = input(tensor);
  if (!host.is_same(tensor)) {
    cuda_->outputs.push_back({host, tensor});
  }
  return host;
}

void Staging::close() {
  if (cuda_) {
    cuda_->inputs_ready.record(
        c10::cuda::getCurrentCUDAStream(cuda_->device.index()));
  }
}

bool Staging::ready() const {
  return !cuda_ || cuda_->inputs_ready.query();
}

void Staging::finish() {
  if (!cuda_) {
    return;
  }
  const c10::cuda::CUDAStreamGuard guard(cuda_->side);
  for (auto& output : cuda_->outputs) {
    output.device.copy_(output.host, /*non_blocking=*/true);
    output.device.record_stream(cuda_->side);
  }
  cuda_->outputs.clear();
  cuda_->outputs_ready.record(cuda_->side);
}

void Staging::synchronize() const {
  if (cuda_) {
    cuda_->outputs_ready.block(
        c10::cuda::getCurrentCUDAStream(cuda_->device.index()));
  }
}

void Staging::on_streams(const std::function<void()>& function) const {
  if (!cuda_) {
    function();
    return;
  }
  const c10::cuda::CUDAStreamGuard guard(cuda_->side);
  function();
}

std::optional<at::Device> Staging::device() const {
  return cuda_ ? std::make_optional(cuda_->device) : std::nullopt;
}

} // namespace ddp::backends::mpi
