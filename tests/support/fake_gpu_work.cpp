#include <tests/support/fake_gpu.h>

#include <ddp/internal/check.h>
#include <ddp/support/current_stream.h>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/CPUFallback.h>
#include <c10/util/Exception.h>

namespace ddp::test::fake_gpu {
namespace {

/// Autograd's thread reads it within a backward, for which the thread that sets
/// it waits.
Graph* captured = nullptr;

/// The recorded collectives; a backward and the thread that calls it add to
/// them in turn.
std::string calls;

} // namespace

StreamOrder& order() {
  static StreamOrder instance;
  return instance;
}

StreamOrder::Access access_of(const at::Tensor& tensor, bool writes) {
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    last += (tensor.size(d) - 1) * tensor.stride(d);
  }
  const auto begin = reinterpret_cast<uintptr_t>(tensor.data_ptr());
  const auto size = tensor.numel() ? (last + 1) * tensor.itemsize() : 0;
  return {begin, begin + size, writes};
}

std::string take_collectives() {
  return std::exchange(calls, {});
}

void note_collective(const char* operation, const at::Tensor& tensor) {
  const auto stream = detail::current_stream(kDevice).id();
  calls += detail::format(
      "{} of {} bytes on {}\n", operation, tensor.nbytes(), stream);
  count_collective(static_cast<int64_t>(tensor.nbytes()));
  order().work(stream, operation, {access_of(tensor, /*writes=*/true)});
}

Graph::~Graph() {
  capture_end();
}

void Graph::capture_begin() {
  TORCH_CHECK(!captured, "another graph is being captured");
  captured = this;
}

void Graph::capture_end() {
  if (captured == this) {
    captured = nullptr;
  }
}

void Graph::replay() const {
  const at::NoGradGuard no_grad;
  for (const auto& work : work_) {
    work();
  }
  order().work(detail::current_stream(kDevice).id(), "a graph", accesses_);
}

Graph* Graph::current() {
  return captured;
}

void Graph::add(
    std::function<void()> work,
    const std::vector<StreamOrder::Access>& accesses) {
  work_.push_back(std::move(work));
  accesses_.insert(accesses_.end(), accesses.begin(), accesses.end());
}

void Graph::add_operation(
    const c10::OperatorHandle& operation,
    const std::vector<c10::IValue>& inputs,
    const std::vector<c10::IValue>& results,
    const std::vector<StreamOrder::Access>& accesses) {
  const auto repeat = [=] {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto stack = inputs;
    at::native::cpu_fallback(operation, &stack);
    for (size_t i = 0; i < results.size(); ++i) {
      const bool fresh = !operation.schema().returns()[i].alias_info();
      if (fresh && results[i].isTensor()) {
        on_cpu(results[i].toTensor()).copy_(on_cpu(stack[i].toTensor()));
      }
    }
  };
  add([repeat] { run_unnoted(repeat); }, accesses);
}

} // namespace ddp::test::fake_gpu
