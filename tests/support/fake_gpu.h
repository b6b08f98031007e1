#pragma once

#include <tests/support/ranks.h>
#include <tests/support/stream_order.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Stream.h>

#include <functional>

/// A device with streams and events for machines without a GPU.
///
/// It is LibTorch's PrivateUse1. Operations run on the CPU, at once, and give
/// the CPU's results; but each is noted with its stream and its memory, and so
/// are events and the host's waits. So a test sees work whose order a real GPU
/// would not keep, and each wait of the host. Freed memory counts as free at
/// once, which a caching allocator's is not.
namespace ddp::test::fake_gpu {

/// To be called once in a process, before the device is used.
void install();

const c10::Device kDevice{c10::kPrivateUse1, 0};

c10::Stream new_stream();

/// Whether `record_stream` was called for the tensor's memory.
bool is_recorded(const at::Tensor& tensor, c10::Stream stream);

/// The order of the device's work.
StreamOrder& order();

/// How often the host has waited for the device.
int64_t host_waits();

/// What the device was given to do. `bytes` are those of its collectives.
struct WorkCounts {
  int64_t kernels = 0, copies = 0, collectives = 0, bytes = 0, host_waits = 0;

  WorkCounts operator-(const WorkCounts& other) const;
};

WorkCounts work_counts();

/// The same memory as a tensor of the CPU.
at::Tensor on_cpu(const at::Tensor& tensor);

/// Adds a collective to the counts.
void count_collective(int64_t its_bytes);

/// Notes a collective on the current stream.
void note_collective(const char* operation, const at::Tensor& tensor);

/// A line for each collective since the last call, in the order of the calls:
/// its name, its bytes and its stream.
std::string take_collectives();

/// Runs operations that are parts of one which is noted, or of none.
void run_unnoted(const std::function<void()>& work);

/// The memory that an operation reads or writes of a tensor.
StreamOrder::Access access_of(const at::Tensor& tensor, bool writes);

/// Work that is repeated without the host's code, in the same memory, as a CUDA
/// graph repeats it. Unlike CUDA's, a capture does the work once. While it
/// lasts, what makes the host wait for the device throws.
class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();

  void capture_begin();
  void capture_end();
  /// On the current stream.
  void replay() const;

  /// The graph that is being captured; null if there is none.
  static Graph* current();
  void add(
      std::function<void()> work,
      const std::vector<StreamOrder::Access>& accesses);
  /// An operation that the CPU runs; its results stay where they are.
  void add_operation(
      const c10::OperatorHandle& operation,
      const std::vector<c10::IValue>& inputs,
      const std::vector<c10::IValue>& results,
      const std::vector<StreamOrder::Access>& accesses);

 private:
  std::vector<std::function<void()>> work_;
  std::vector<StreamOrder::Access> accesses_;
};

/// A group of the same ranks for tensors on the device. Its collectives run on
/// a stream of their own, as NCCL's do, and over gloo. As with NCCL, a complex
/// tensor is reduced as real numbers, and these are what the future holds.
/// Collective.
ProcessGroup group_of(const ProcessGroup& group);

/// The memory that the group's backend has for buckets: none, as NCCL where a
/// GPU lacks multicast; some; or less than it offers.
enum class BackendMemory { kNone, kSome, kTooLittle };

void set_backend_memory(BackendMemory memory);

/// How many tensors lie, or once lay, in the backend's memory.
int64_t backend_tensors();

/// Whether an allocation that failed has left this thread in the backend's
/// pool, as in ProcessGroupNCCL.
bool is_pool_open();

/// Requires that no order was left open so far.
inline void require_no_races() {
  const auto races = order().take_races();
  INFO((races.empty() ? "" : races[0]));
  REQUIRE(races.empty());
}

} // namespace ddp::test::fake_gpu

namespace ddp::test {

/// A RANKS_TEST whose ranks have a `gpu_group` for the device, too, and leave
/// no races.
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
