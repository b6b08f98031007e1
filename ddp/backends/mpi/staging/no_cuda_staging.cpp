#include <ddp/backends/mpi/staging/staging.h>

#include <ddp/internal/check.h>

namespace ddp::backends::mpi {

struct Staging::Cuda {};

at::Tensor Staging::input(const at::Tensor& tensor) {
  DDP_CHECK_VALUE(
      tensor.is_cpu(),
      "backend mpi: got a tensor on {}, but ddp was built without CUDA. "
      "Build ddp where the CUDA toolkit of LibTorch's version is installed",
      tensor.device());
  return tensor;
}

at::Tensor Staging::output(const at::Tensor& tensor) {
  return input(tensor);
}

void Staging::close() {}

bool Staging::ready() const {
  return true;
}

void Staging::finish() {}

void Staging::synchronize() const {}

void Staging::on_streams(const std::function<void()>& function) const {
  function();
}

std::optional<at::Device> Staging::device() const {
  return std::nullopt;
}

} // namespace ddp::backends::mpi
