#pragma once

#include <tests/support/ranks.h>
#include <tests/support/stream_order.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Stream.h>

#include <functional>

/// A device with streams and events for machines without a GPU.
///
/// The device is LibTorch's PrivateUse1. Operations run on the CPU,
/// immediately, with the CPU's results, but each operation is recorded with its
/// stream and memory, as are events and the host's waits. A test thus detects
/// work that a real GPU could reorder, and each wait of the host. Unlike a
/// caching allocator, the device frees memory immediately.
namespace ddp::test::fake_gpu {

/// Registers the device. Call once in a process, before the device is used.
void install();

const c10::Device kDevice{c10::kPrivateUse1, 0};

c10::Stream new_stream();

/// Whether `record_stream` was called for the tensor's memory.
bool is_recorded(const at::Tensor& tensor, c10::Stream stream);

/// The order of the device's work.
StreamOrder& order();

/// The number of times that the host has waited for the device.
int64_t host_waits();

/// The device's work so far. `bytes` counts the bytes of collectives.
struct WorkCounts {
  int64_t kernels = 0, copies = 0, collectives = 0, bytes = 0, host_waits = 0;

  WorkCounts operator-(const WorkCounts& other) const;
};

WorkCounts work_counts();

/// A CPU tensor that shares the memory of `tensor`.
at::Tensor on_cpu(const at::Tensor& tensor);

/// Adds a collective to the counts.
void count_collective(int64_t its_bytes);

/// Records a collective on the current stream.
void note_collective(const char* operation, const at::Tensor& tensor);

/// A line for each collective since the last call, in the order of the calls:
/// its name, its bytes and its stream.
std::string take_collectives();

/// Runs operations without recording them.
void run_unnoted(const std::function<void()>& work);

/// The memory of a tensor that an operation reads or writes.
StreamOrder::Access access_of(const at::Tensor& tensor, bool writes);

/// Work that is replayed without the host's code, in the same memory, like a
/// CUDA graph. Unlike in CUDA, a capture also runs the work once. During a
/// capture, a call that makes the host wait for the device throws.
class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();

  void capture_begin();
  void capture_end();
  /// Replays the work on the current stream.
  void replay() const;

  /// The graph that is being captured; null if there is none.
  static Graph* current();
  void add(
      std::function<void()> work,
      const std::vector<StreamOrder::Access>& accesses);
  /// Adds an operation that the CPU runs; its results stay in the same memory.
  void add_operation(
      const c10::OperatorHandle& operation,
      const std::vector<c10::IValue>& inputs,
      const std::vector<c10::IValue>& results,
      const std::vector<StreamOrder::Access>& accesses);

 private:
  std::vector<std::function<void()>> work_;
  std::vector<StreamOrder::Access> accesses_;
};

/// A group of the same ranks for tensors on the device. The group's collectives
/// run on a separate stream, as NCCL's do, and over gloo. As with NCCL, a
/// complex tensor is reduced as real numbers, which the future contains.
/// Collective.
ProcessGroup group_of(const ProcessGroup& group);

/// Sets the name of the groups' backends, which is "fake_gpu" by default.
void set_backend_name(const std::string& name);

/// The memory for buckets in the group's backend: none, like NCCL's if a GPU
/// lacks multicast; some; or less than the backend offers.
enum class BackendMemory { kNone, kSome, kTooLittle };

void set_backend_memory(BackendMemory memory);

/// The number of tensors allocated so far in the backend's memory.
int64_t backend_tensors();

/// Whether an allocation that failed has left this thread in the backend's
/// pool, as in ProcessGroupNCCL.
bool is_pool_open();

/// Requires that no race has occurred so far.
inline void require_no_races() {
  const auto races = order().take_races();
  INFO((races.empty() ? "" : races[0]));
  REQUIRE(races.empty());
}

} // namespace ddp::test::fake_gpu

namespace ddp::test {

/// A RANKS_TEST whose ranks also have a `gpu_group` for the device. Requires
/// that no race occurs.
#define FAKE_GPU_TEST(...)                       \
  DDP_TEST_BY(                                   \
      run_fake_gpu_test,                         \
      ([[maybe_unused]] ProcessGroup group,      \
       [[maybe_unused]] ProcessGroup gpu_group), \
      __VA_ARGS__)
inline void run_fake_gpu_test(
    void (*body)(ProcessGroup, ProcessGroup),
    const char* /*title*/,
    int size = 3) {
  ranks(size, [&](ProcessGroup group) {
    fake_gpu::install();
    body(group, fake_gpu::group_of(group));
    fake_gpu::require_no_races();
  });
}

} // namespace ddp::test
