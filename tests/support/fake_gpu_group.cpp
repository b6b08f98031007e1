#include <tests/support/fake_gpu.h>

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <ddp/debug/backend_wrapper.h>
#include <ddp/support/current_stream.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace ddp::test::fake_gpu {
namespace {

using Tensors = std::vector<at::Tensor>;

std::string backend_name = "fake_gpu";
BackendMemory backend_memory = BackendMemory::kNone;
int64_t allocated = 0;
bool pool_is_open = false;

/// The backend's memory is the device's.
struct BackendAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    TORCH_CHECK(
        backend_memory != BackendMemory::kTooLittle, "ncclMemAlloc failed");
    return c10::GetAllocator(c10::kPrivateUse1)->allocate(size);
  }
  void copy_data(void* to, const void* from, size_t size) const override {
    default_copy_data(to, from, size);
  }
};

/// Orders further work of `later` after the work of `earlier` so far.
void follow(const c10::Stream& later, const c10::Stream& earlier) {
  c10::Event event(c10::kPrivateUse1);
  event.record(earlier);
  event.block(later);
}

c10::Stream current_stream() {
  return detail::current_stream(kDevice);
}

/// Complete as soon as it is queued, like NCCL's.
class QueuedWork final : public c10d::Work {
 public:
  QueuedWork(c10::Stream stream, Tensors results)
      : stream_(stream),
        future_(c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()),
            std::vector<c10::Device>{kDevice})) {
    const c10::StreamGuard guard(stream_);
    future_->markCompleted(c10::IValue(std::move(results)));
  }

  bool isCompleted() override {
    return true;
  }
  bool isSuccess() const override {
    return true;
  }
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    follow(current_stream(), stream_);
    return true;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return future_;
  }

 private:
  c10::Stream stream_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class Backend final : public c10d::Backend {
 public:
  explicit Backend(c10::intrusive_ptr<c10d::Backend> gloo)
      : c10d::Backend(gloo->getRank(), gloo->getSize()),
        gloo_(std::move(gloo)),
        stream_(new_stream()) {}

  const std::string getBackendName() const override {
    return backend_name;
  }

  bool supportsTensorAlloc(c10::DeviceIndex /*index*/) override {
    return backend_memory != BackendMemory::kNone;
  }

  std::shared_ptr<c10::Allocator> getMemAllocator() override {
    return std::make_shared<BackendAllocator>();
  }

  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    pool_is_open = true;
    BackendAllocator().allocate(size * options.dtype().itemsize());
    pool_is_open = false;
    ++allocated;
    return at::empty({size}, options);
  }

  c10::intrusive_ptr<c10d::Work> allreduce(
      Tensors& tensors,
      const c10d::AllreduceOptions& options) override {
    return queue(
        "allreduce", tensors, [gloo = gloo_, options](Tensors& on_cpu) {
          return gloo->allreduce(on_cpu, options);
        });
  }

  c10::intrusive_ptr<c10d::Work> broadcast(
      Tensors& tensors,
      const c10d::BroadcastOptions& options) override {
    return queue(
        "broadcast", tensors, [gloo = gloo_, options](Tensors& on_cpu) {
          return gloo->broadcast(on_cpu, options);
        });
  }

  c10::intrusive_ptr<c10d::Work> allgather(
      std::vector<Tensors>& outputs,
      Tensors& inputs,
      const c10d::AllgatherOptions& options) override {
    TORCH_CHECK_TYPE(
        !inputs[0].is_complex(),
        "Input tensor data type is not supported for NCCL process group: ",
        inputs[0].scalar_type());
    auto tensors = outputs[0];
    tensors.push_back(inputs[0]);
    return queue(
        "allgather", tensors, [gloo = gloo_, options](Tensors& on_cpu) {
          Tensors own{on_cpu.back()};
          std::vector<Tensors> all{Tensors(on_cpu.begin(), on_cpu.end() - 1)};
          return gloo->allgather(all, own, options);
        });
  }

  c10::intrusive_ptr<c10d::Work> alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<int64_t>& output_sizes,
      std::vector<int64_t>& input_sizes,
      const c10d::AllToAllOptions& options) override {
    return queue(
        "alltoall_base",
        {output, input},
        [gloo = gloo_, output_sizes, input_sizes, options](
            Tensors& on_cpu) mutable {
          return gloo->alltoall_base(
              on_cpu[0], on_cpu[1], output_sizes, input_sizes, options);
        });
  }

 private:
  template <typename Collective>
  c10::intrusive_ptr<c10d::Work> queue(
      const char* name,
      Tensors tensors,
      Collective collective) {
    follow(stream_, current_stream());
    const c10::StreamGuard guard(stream_);
    Tensors aliases;
    std::vector<StreamOrder::Access> accesses;
    for (auto& tensor : tensors) {
      if (tensor.is_complex()) {
        tensor = at::view_as_real(tensor);
      }
      TORCH_CHECK(
          tensor.device() == kDevice,
          name,
          " of a tensor on ",
          tensor.device());
      aliases.push_back(on_cpu(tensor));
      accesses.push_back(access_of(tensor, /*writes=*/true));
      note_collective(name, tensor);
    }
    collective(aliases)->wait();
    if (auto* graph = Graph::current()) { // the tensors own the aliases' memory
      graph->add(
          [collective, aliases, tensors]() mutable {
            collective(aliases)->wait();
          },
          accesses);
    }
    return c10::make_intrusive<QueuedWork>(stream_, tensors);
  }

  c10::intrusive_ptr<c10d::Backend> gloo_;
  c10::Stream stream_;
};

} // namespace

void set_backend_name(const std::string& name) {
  backend_name = name;
}

void set_backend_memory(BackendMemory memory) {
  backend_memory = memory;
}

int64_t backend_tensors() {
  return allocated;
}

bool is_pool_open() {
  return pool_is_open;
}

ProcessGroup group_of(const ProcessGroup& group) {
  using c10d::ProcessGroup;
  const auto gloo = group.c10d()->getBackend(c10::kCPU);
  const auto both = c10::make_intrusive<ProcessGroup>(
      c10::make_intrusive<c10d::PrefixStore>("fake_gpu", group.store()),
      gloo->getRank(),
      gloo->getSize());
  both->setBackend(c10::kCPU, ProcessGroup::BackendType::GLOO, gloo);
  both->setBackend(
      c10::kPrivateUse1,
      ProcessGroup::BackendType::CUSTOM,
      debug::wrap_backend(
          detail::ProcessGroupImpl::of(group),
          c10::make_intrusive<Backend>(gloo)));
  both->setDefaultBackend(ProcessGroup::BackendType::GLOO);
  return ddp::ProcessGroup::from_c10d(both, kDevice);
}

} // namespace ddp::test::fake_gpu
