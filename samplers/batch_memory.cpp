#include <ddp/samplers/internal/batch_memory.h>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>

namespace ddp::detail {

struct DDP_LOCAL BatchMemory::Blocks {
  struct Block {
    c10::DataPtr data;
    size_t bytes;
  };

  /// Free blocks of other sizes are from batches of another size.
  Block take(size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = std::find_if(
        free.begin(), free.end(), [&](auto& b) { return b.bytes == bytes; });
    if (found == free.end()) {
      return {c10::GetCPUAllocator()->allocate(bytes), bytes};
    }
    auto block = std::move(*found);
    free.erase(found);
    return block;
  }

  void give_back(Block block) {
    const std::lock_guard<std::mutex> lock(mutex);
    free.push_back(std::move(block));
    if (free.size() > kept) {
      free.erase(free.begin());
    }
  }

  explicit Blocks(size_t count) : kept(count) {}

  const size_t kept;
  std::mutex mutex;
  std::vector<Block> free;
};

BatchMemory::BatchMemory(size_t kept, bool pinned)
    : pinned_(
          pinned && at::globalContext().hasCUDA() &&
          at::detail::getCUDAHooks().deviceCount() > 0),
      blocks_(std::make_shared<Blocks>(kept)) {}

void BatchMemory::pin(at::Tensor& tensor) const {
  if (pinned_ && tensor.defined() && tensor.is_cpu()) {
    tensor = tensor.pin_memory();
  }
}

at::Tensor BatchMemory::empty(c10::IntArrayRef sizes, c10::ScalarType dtype)
    const {
  if (pinned_) {
    return at::empty(sizes, at::TensorOptions(dtype).pinned_memory(true));
  }
  const auto bytes = static_cast<size_t>(c10::multiply_integers(sizes)) *
      c10::elementSize(dtype);
  auto block = std::make_shared<Blocks::Block>(blocks_->take(bytes));
  return at::from_blob(
      block->data.get(),
      sizes,
      [blocks = blocks_, block](void*) {
        blocks->give_back(std::move(*block));
      },
      at::TensorOptions(dtype));
}

} // namespace ddp::detail
