#include <bench/shared_memory.h>

#include <c10/util/Exception.h>

#include <string>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

namespace bench {

SharedMemory::SharedMemory(const ddp::ProcessGroup& group, size_t bytes)
    : bytes_(bytes) {
  int file = -1;
  std::string path;
  if (group.rank() == 0) {
    file = memfd_create("ddp_bench", MFD_CLOEXEC);
    TORCH_CHECK(
        file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0,
        "no shared memory of ",
        bytes,
        " bytes");
    path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file);
  }
  path = group.broadcast(path);
  if (file < 0) {
    file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    TORCH_CHECK(file >= 0, "cannot open rank 0's ", path);
  }
  data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  TORCH_CHECK(data_ != MAP_FAILED, "cannot map ", bytes, " bytes");
  group.barrier(); // rank 0's descriptor is needed until here
  close(file);
}

SharedMemory::~SharedMemory() {
  munmap(data_, bytes_);
}

StartLine::StartLine(const ddp::ProcessGroup& group)
    : ranks_(group.size()),
      memory_(group, sizeof(std::atomic<int64_t>)),
      arrived_(*static_cast<std::atomic<int64_t>*>(memory_.data())) {}

void StartLine::meet() const {
  const auto number = arrived_.fetch_add(1);
  const auto all = (number / ranks_ + 1) * ranks_;
  for (int64_t spins = 1; arrived_.load() < all; ++spins) {
    if (spins % 10000 == 0) {
      sched_yield();
    }
  }
}

} // namespace bench
