#include <tests/support/fake_gpu.h>

#include <ddp/backends/capture.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

namespace ddp::test::fake_gpu {
namespace {

using Access = StreamOrder::Access;

std::atomic<int64_t> kernels{0}, copies{0}, collectives{0}, bytes{0}, waits{0};
std::atomic<int64_t> streams{1};
std::mutex used_mutex;
std::vector<std::pair<void*, int64_t>> used;
thread_local int64_t current = 0;
/// Whether this thread is in an operation whose parts are not recorded.
thread_local bool inside = false;

c10::Stream stream_of(int64_t id) {
  return c10::Stream(c10::Stream::UNSAFE, kDevice, id);
}

void wait_on_host(const StreamOrder::Point& point) {
  TORCH_CHECK(
      !Graph::current(),
      "the host waits for the device while a graph is captured");
  ++waits;
  order().wait_on_host(point);
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override {
    return c10::kPrivateUse1;
  }
  c10::Device exchangeDevice(c10::Device /*device*/) const override {
    return kDevice;
  }
  c10::Device getDevice() const override {
    return kDevice;
  }
  void setDevice(c10::Device /*device*/) const override {}
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override {
    return 1;
  }

  c10::Stream getStream(c10::Device /*device*/) const override {
    return stream_of(current);
  }
  c10::Stream getDefaultStream(c10::Device /*device*/) const override {
    return stream_of(0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device /*device*/, bool /*high*/)
      const override {
    return new_stream();
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream_of(std::exchange(current, stream.id()));
  }

  void record(
      void** event,
      const c10::Stream& stream,
      c10::DeviceIndex /*device*/,
      c10::EventFlag /*flag*/) const override {
    delete static_cast<StreamOrder::Point*>(*event);
    *event = new StreamOrder::Point(order().reached(stream.id()));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) {
      order().wait(stream.id(), *static_cast<StreamOrder::Point*>(event));
    }
  }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/)
      const noexcept override {
    delete static_cast<StreamOrder::Point*>(event);
  }
  bool queryEvent(void* /*event*/) const override {
    return true;
  }
  bool queryStream(const c10::Stream& /*stream*/) const override {
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    wait_on_host(order().reached(stream.id()));
  }
  void synchronizeDevice(c10::DeviceIndex /*device*/) const override {
    wait_on_host(order().reached());
  }
  void synchronizeEvent(void* event) const override {
    wait_on_host(*static_cast<StreamOrder::Point*>(event));
  }
};

void wait_for_current_stream() {
  Guard().synchronizeStream(stream_of(current));
}

struct Memory final : c10::Allocator {
  struct Block {
    void* data;
    size_t size;
  };

  c10::DataPtr allocate(size_t size) override {
    auto* block = new Block{std::malloc(std::max<size_t>(size, 1)), size};
    return {block->data, block, &release, kDevice};
  }
  static void release(void* context) {
    auto* block = static_cast<Block*>(context);
    const auto begin = reinterpret_cast<uintptr_t>(block->data);
    order().forget(begin, begin + block->size);
    std::free(block->data);
    delete block;
  }
  void copy_data(void* to, const void* from, size_t size) const override {
    std::memcpy(to, from, size);
  }
};

Memory& memory() {
  static Memory instance;
  return instance;
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return true;
  }
  bool isPinnedPtr(const void* /*data*/) const override {
    return true; // all of the host's memory
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return c10::GetAllocator(c10::kCPU);
  }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override {
    return true;
  }
  c10::DeviceIndex deviceCount() const override {
    return 1;
  }
  /// The device draws nothing, but torch::manual_seed seeds its generator.
  const at::Generator& getDefaultGenerator(
      c10::DeviceIndex /*device*/) const override {
    return at::detail::getDefaultCPUGenerator();
  }
};

void add(std::vector<Access>& accesses, const c10::IValue& value, bool writes) {
  if (value.isTensor()) {
    const auto& tensor = value.toTensor();
    if (tensor.defined() && tensor.device() == kDevice) {
      accesses.push_back(access_of(tensor, writes));
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      add(accesses, element, writes);
    }
  }
}

/// Runs an operation on the CPU.
void run(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& name = op.operator_name().name;
  const auto& schema = op.schema();
  const auto count = schema.arguments().size();
  std::vector<Access> accesses;
  for (size_t i = 0; i < count; ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    add(accesses,
        (*stack)[stack->size() - count + i],
        alias && alias->isWrite());
  }
  torch::jit::Stack inputs;
  if (Graph::current()) {
    inputs.assign(stack->end() - static_cast<int64_t>(count), stack->end());
  }
  const bool outermost = !inside;
  run_unnoted([&] { at::native::cpu_fallback(op, stack); });
  if (!outermost) {
    return;
  }
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    if (!schema.returns()[i].alias_info()) {
      const auto place = stack->size() - schema.returns().size() + i;
      add(accesses, (*stack)[place], true);
    }
  }
  ++kernels;
  order().work(current, name, accesses);
  if (auto* graph = Graph::current()) {
    const auto returns = static_cast<int64_t>(schema.returns().size());
    const torch::jit::Stack results(stack->end() - returns, stack->end());
    graph->add_operation(op, inputs, results, accesses);
  }
  if (name == "aten::_local_scalar_dense") {
    wait_for_current_stream();
  }
}

at::Tensor empty(
    c10::IntArrayRef size,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> /*layout*/,
    std::optional<at::Device> /*device*/,
    std::optional<bool> /*pin_memory*/,
    std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(
      size,
      &memory(),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype),
      format);
}

at::Tensor empty_strided(
    c10::IntArrayRef size,
    c10::IntArrayRef stride,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> /*layout*/,
    std::optional<at::Device> /*device*/,
    std::optional<bool> /*pin_memory*/) {
  return at::detail::empty_strided_generic(
      size,
      stride,
      &memory(),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype));
}

at::Tensor copy_from(
    const at::Tensor& from,
    const at::Tensor& to,
    bool non_blocking) {
  on_cpu(to).copy_(on_cpu(from));
  if (inside) {
    return to;
  }
  std::vector<Access> accesses;
  add(accesses, from, false);
  add(accesses, to, true);
  ++copies;
  order().work(current, "copy", accesses);
  if (auto* graph = Graph::current()) {
    graph->add([=] { on_cpu(to).copy_(on_cpu(from)); }, accesses);
  }
  if (!non_blocking && (from.is_cpu() || to.is_cpu())) {
    wait_for_current_stream();
  }
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  return copy_from(from, to, false);
}

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  copy_from(from, to, non_blocking);
  return to;
}

at::Tensor as_strided(
    const at::Tensor& tensor,
    c10::IntArrayRef size,
    c10::IntArrayRef stride,
    std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(tensor, size, stride, offset);
}

at::Tensor view(const at::Tensor& tensor, c10::IntArrayRef size) {
  return at::native::view(tensor, size);
}

void record_stream(at::Tensor& tensor, c10::Stream stream) {
  const std::lock_guard<std::mutex> lock(used_mutex);
  used.emplace_back(tensor.data_ptr(), stream.id());
}

/// So that modules can be moved to the device.
bool may_become(const at::Tensor& /*tensor*/, const at::Tensor& /*from*/) {
  return true;
}

void add_kernels() {
  // The kernels stay registered until the process ends.
  static auto* const all = new torch::Library(
      torch::Library::IMPL,
      "_",
      c10::DispatchKey::PrivateUse1,
      __FILE__,
      __LINE__);
  all->fallback(torch::CppFunction::makeFromBoxedFunction<&run>());
  static auto* const aten = new torch::Library(
      torch::Library::IMPL,
      "aten",
      c10::DispatchKey::PrivateUse1,
      __FILE__,
      __LINE__);
  // LibTorch would split these; a GPU has one kernel for all tensors.
  for (const auto* name : {"_foreach_copy_", "_foreach_mul_.Scalar"}) {
    aten->impl(name, torch::CppFunction::makeFromBoxedFunction<&run>());
  }
  aten->impl("empty.memory_format", TORCH_FN(empty));
  aten->impl("empty_strided", TORCH_FN(empty_strided));
  aten->impl("_copy_from", TORCH_FN(copy_from));
  aten->impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  aten->impl("copy_", TORCH_FN(copy));
  aten->impl("as_strided", TORCH_FN(as_strided));
  aten->impl("view", TORCH_FN(view));
  aten->impl("view_as_real", TORCH_FN(at::native::view_as_real));
  aten->impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  aten->impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  aten->impl("record_stream", TORCH_FN(record_stream));
  aten->impl("_has_compatible_shallow_copy_type", TORCH_FN(may_become));
}

} // namespace

void install() {
  static const Guard guard;
  static Hooks hooks;
  c10::register_privateuse1_backend("fake_gpu");
  const c10::impl::DeviceGuardImplRegistrar registrar(
      c10::kPrivateUse1, &guard);
  c10::SetAllocator(c10::kPrivateUse1, &memory());
  at::RegisterPrivateUse1HooksInterface(&hooks);
  backends::set_capture_query(
      [](c10::Device /*device*/) { return Graph::current() != nullptr; });
  add_kernels();
}

void run_unnoted(const std::function<void()>& work) {
  const bool before = std::exchange(inside, true);
  work();
  inside = before;
}

at::Tensor on_cpu(const at::Tensor& tensor) {
  if (tensor.is_cpu()) {
    return tensor;
  }
  const auto same = at::from_blob(
      tensor.data_ptr(),
      tensor.sizes(),
      tensor.strides(),
      tensor.options().device(c10::kCPU).requires_grad(false));
  return tensor.is_conj() ? same.conj() : same;
}

void count_collective(int64_t its_bytes) {
  ++collectives;
  bytes += its_bytes;
}

bool is_recorded(const at::Tensor& tensor, c10::Stream stream) {
  const std::lock_guard<std::mutex> lock(used_mutex);
  return std::find(
             used.begin(),
             used.end(),
             std::pair<void*, int64_t>(tensor.data_ptr(), stream.id())) !=
      used.end();
}

c10::Stream new_stream() {
  return stream_of(streams++);
}

int64_t host_waits() {
  return waits;
}

WorkCounts WorkCounts::operator-(const WorkCounts& other) const {
  return {
      kernels - other.kernels,
      copies - other.copies,
      collectives - other.collectives,
      bytes - other.bytes,
      host_waits - other.host_waits};
}

WorkCounts work_counts() {
  return {kernels, copies, collectives, bytes, waits};
}

} // namespace ddp::test::fake_gpu
