#include <ddp/backends/shm/memory/memory.h>

#include <ddp/internal/check.h>
#include <ddp/support/signals_blocked.h>

#include <ATen/ops/from_blob.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

namespace ddp::backends::shm {
namespace {

int64_t rounded_up(int64_t bytes) {
  return (std::max<int64_t>(bytes, 1) + Heap::kAlignment - 1) /
      Heap::kAlignment * Heap::kAlignment;
}

constexpr int64_t kPage = 4096;
constexpr int64_t kSlotsBegin =
    (int64_t(sizeof(Control)) + kPage - 1) / kPage * kPage;
constexpr int64_t kHeapBegin = kSlotsBegin + int64_t(kSlotBytes) * kSlots;
// Smaller pieces keep their pages when they are freed.
constexpr int64_t kLargePiece = int64_t(4) << 20;
// The addresses of all ranks of a group; a process has 128 TiB for all groups.
constexpr int64_t kAddresses = int64_t(4) << 40;

int64_t size_of(int descriptor) {
  struct stat status {};
  DDP_CHECK(fstat(descriptor, &status) == 0, "fstat: {}", std::strerror(errno));
  return status.st_size;
}

/// The size of the machine's memory; less if many ranks need addresses, or if a
/// limit on file sizes is lower, at which the kernel would end the process.
int64_t size_for(int64_t ranks) {
  const int64_t machine = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  auto size = kHeapBegin + std::min(machine, kAddresses / ranks);
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    size = std::min(size, static_cast<int64_t>(limit.rlim_cur));
  }
  DDP_CHECK(
      size >= kHeapBegin,
      "it cannot allocate memory: the limit on file sizes is {} bytes (ulimit "
      "-f)",
      size);
  return size;
}

FileDescriptor make_memory(int64_t ranks) {
  const auto size = size_for(ranks);
  const auto check = [](bool worked, const char* call) {
    DDP_CHECK(
        worked,
        "it cannot allocate memory: {}: {}",
        call,
        std::strerror(errno));
  };
  FileDescriptor memory(memfd_create("ddp", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  check(memory.get() >= 0, "memfd_create");
  check(ftruncate(memory.get(), size) == 0, "ftruncate");
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  check(fcntl(memory.get(), F_ADD_SEALS, seals) == 0, "fcntl(F_ADD_SEALS)");
  return memory;
}

/// Allocates the pages of a piece; returns whether there were enough. Signals
/// are blocked: for each signal, the kernel would free the pages and begin
/// again.
bool provide(int descriptor, int64_t offset, int64_t bytes) {
  sigset_t all;
  sigfillset(&all);
  const ddp::detail::SignalsBlocked blocked(all);
  int result = 0;
  do {
    result = fallocate(descriptor, 0, offset, bytes);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

} // namespace

Heap::Heap(int64_t begin, int64_t end) : free_{{begin, end - begin}} {}

std::optional<int64_t> Heap::take(int64_t bytes) {
  const auto length = rounded_up(bytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto piece =
      std::find_if(free_.begin(), free_.end(), [&](const auto& candidate) {
        return candidate.second >= length;
      });
  if (piece == free_.end()) {
    return std::nullopt;
  }
  const auto [offset, available] = *piece;
  free_.erase(piece);
  if (available > length) {
    free_.insert({offset + length, available - length});
  }
  taken_.insert({offset, length});
  return offset;
}

int64_t Heap::length(int64_t offset) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return taken_.at(offset);
}

void Heap::give_back(int64_t offset) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto length = taken_.at(offset);
  taken_.erase(offset);
  const auto piece = free_.insert({offset, length}).first;
  const auto next = std::next(piece);
  if (next != free_.end() && offset + length == next->first) {
    piece->second += next->second;
    free_.erase(next);
  }
  if (piece != free_.begin()) {
    const auto previous = std::prev(piece);
    if (previous->first + previous->second == offset) {
      previous->second += piece->second;
      free_.erase(piece);
    }
  }
}

Mapping::Mapping(int descriptor) : size_(size_of(descriptor)) {
  const int seals = fcntl(descriptor, F_GET_SEALS);
  DDP_CHECK(
      seals >= 0 && (seals & F_SEAL_SHRINK) && size_ >= kHeapBegin,
      "the memory that another rank sent was not created by ddp");
  auto* begin = mmap(
      nullptr,
      size_,
      PROT_READ | PROT_WRITE,
      MAP_SHARED | MAP_NORESERVE,
      descriptor,
      0);
  DDP_CHECK(
      begin != MAP_FAILED,
      "it cannot reserve {} bytes of address space: {}. Is address "
      "space limited (ulimit -v)?",
      size_,
      std::strerror(errno));
  begin_ = static_cast<char*>(begin);
  madvise(begin_, size_, MADV_HUGEPAGE); // if the system allows them
  madvise(begin_, size_, MADV_DONTDUMP); // a core would hold all ranks' data
}

Mapping::~Mapping() {
  munmap(begin_, size_);
}

Control& Mapping::control() const {
  return *reinterpret_cast<Control*>(begin_);
}

char* Mapping::slot(uint64_t number) const {
  return begin_ + kSlotsBegin + number % kSlots * kSlotBytes;
}

int64_t Mapping::offset_of(const void* data, int64_t bytes) const {
  const auto offset = static_cast<const char*>(data) - begin_;
  return offset >= kHeapBegin && offset + bytes <= size_ ? offset : -1;
}

Memory::Memory(int64_t ranks)
    : descriptor_(make_memory(ranks)),
      mapping_(std::make_shared<const Mapping>(descriptor_.get())),
      heap_(kHeapBegin, mapping_->size()) {}

void Memory::give_back(int64_t offset) {
  const auto bytes = heap_.length(offset);
  if (bytes >= kLargePiece) { // returns its pages to the system
    fallocate(
        descriptor_.get(),
        FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
        offset,
        bytes);
  }
  heap_.give_back(offset);
}

at::Tensor Memory::tensor(int64_t numel, const at::TensorOptions& options) {
  const auto element = static_cast<int64_t>(options.dtype().itemsize());
  DDP_CHECK_WITH(
      OutOfMemoryError,
      numel <= mapping_->size() / element,
      "backend shm cannot allocate a tensor of {} elements of {} bytes: the "
      "shared memory of a group is limited to {} bytes",
      numel,
      element,
      mapping_->size());
  const auto bytes = numel * element;
  auto offset = heap_.take(bytes);
  if (offset &&
      !provide(descriptor_.get(), *offset, std::max<int64_t>(bytes, 1))) {
    heap_.give_back(*offset);
    offset = std::nullopt;
  }
  DDP_CHECK_WITH(
      OutOfMemoryError,
      offset,
      "backend shm does not have {} bytes of memory left for a tensor",
      bytes);
  return at::from_blob(
      mapping_->at(*offset),
      {numel},
      [self = shared_from_this(), offset = *offset](void*) {
        self->give_back(offset);
      },
      options);
}

} // namespace ddp::backends::shm
