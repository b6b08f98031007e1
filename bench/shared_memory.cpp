#include <bench/shared_memory.h>

#include <ATen/ops/from_file.h>
#include <c10/util/Exception.h>

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

namespace bench {

at::Tensor shared_tensor(
    const ddp::ProcessGroup& group,
    int64_t count,
    at::ScalarType dtype) {
  const int file = memfd_create("ddp_bench", MFD_CLOEXEC);
  TORCH_CHECK(file >= 0, "cannot create shared memory");
  const auto path =
      group.broadcast(c10::str("/proc/", getpid(), "/fd/", file)); // rank 0's
  auto tensor = at::from_file(path, /*shared=*/true, count, dtype);
  group.barrier(); // rank 0's descriptor is needed until here
  close(file);
  return tensor;
}

SpinBarrier::SpinBarrier(const ddp::ProcessGroup& group)
    : ranks_(group.size()),
      memory_(shared_tensor(group, 1, at::kLong)),
      arrived_(static_cast<std::atomic<int64_t>*>(memory_.mutable_data_ptr())) {
}

void SpinBarrier::operator()() const {
  const auto number = arrived_->fetch_add(1);
  const auto all = (number / ranks_ + 1) * ranks_;
  for (int64_t spins = 1; arrived_->load() < all; ++spins) {
    if (spins % 10000 == 0) {
      sched_yield();
    }
  }
}

} // namespace bench
