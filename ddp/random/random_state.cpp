#include <ddp/random.h>

#include <ddp/random/random_state.h>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <mutex>

namespace ddp {
namespace {

using State = torch::OrderedDict<std::string, at::Tensor>;

c10::DeviceIndex gpus() {
  return at::globalContext().hasCUDA()
      ? at::detail::getCUDAHooks().deviceCount()
      : c10::DeviceIndex(0);
}

at::Generator generator_of(const c10::Device& device) {
  return at::globalContext().defaultGenerator(device);
}

at::Tensor state_of(const c10::Device& device) {
  auto generator = generator_of(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

/// Calls `function` with each generator of this process, and its new state.
template <typename Function>
void for_generators(const State& state, const Function& function) {
  for (const auto& entry : state) {
    const c10::Device device(entry.key());
    if (device.is_cuda() && device.index() >= gpus()) {
      continue;
    }
    auto generator = generator_of(device);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    function(generator, entry.value());
  }
}

} // namespace

State random_state() {
  State state;
  state.insert("cpu", state_of(at::kCPU));
  for (c10::DeviceIndex i = 0; i < gpus(); ++i) {
    if (at::detail::getCUDAHooks().hasPrimaryContext(i)) {
      const c10::Device device(at::kCUDA, i);
      state.insert(device.str(), state_of(device));
    }
  }
  return state;
}

void set_random_state(const State& state) {
  for_generators(state, [](at::Generator& generator, const at::Tensor& own) {
    generator.set_state(own);
  });
}

void detail::check_random_state(const State& state) {
  for_generators(state, [](at::Generator& generator, const at::Tensor& own) {
    generator.clone().set_state(own);
  });
}

} // namespace ddp
