#include <ddp/random.h>

#include <ddp/random/random_state.h>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <mutex>

namespace ddp {
namespace {

using State = torch::OrderedDict<std::string, at::Tensor>;

c10::DeviceIndex gpus() {
  return at::globalContext().hasCUDA()
      ? at::detail::getCUDAHooks().deviceCount()
      : c10::DeviceIndex(0);
}

/// The GPUs that this process has used.
std::vector<c10::DeviceIndex> used_gpus() {
  std::vector<c10::DeviceIndex> used;
  for (c10::DeviceIndex i = 0; i < gpus(); ++i) {
    if (at::detail::getCUDAHooks().hasPrimaryContext(i)) {
      used.push_back(i);
    }
  }
  return used;
}

bool is_gpu(const c10::Device& device) {
  return device.is_cuda();
}

at::Generator generator_of(const c10::Device& device) {
  return at::globalContext().defaultGenerator(device);
}

at::Tensor state_of(const c10::Device& device) {
  auto generator = generator_of(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

std::vector<c10::Device> devices_of(const State& state) {
  std::vector<c10::Device> devices;
  for (const auto& key : state.keys()) {
    devices.emplace_back(key);
  }
  return detail::generators_for(devices, used_gpus());
}

/// Calls `function` with each generator of this process, and its new state.
template <typename Function>
void for_generators(const State& state, const Function& function) {
  const auto devices = devices_of(state);
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].is_cuda() && devices[i].index() >= gpus()) {
      continue;
    }
    auto generator = generator_of(devices[i]);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    function(generator, state[i].value());
  }
}

/// Warns if a GPU continues with other random numbers.
void warn_of_others(const State& state) {
  const auto devices = devices_of(state);
  if (std::none_of(devices.begin(), devices.end(), is_gpu)) {
    return;
  }
  for (const auto index : used_gpus()) {
    const c10::Device gpu(at::kCUDA, index);
    if (std::find(devices.begin(), devices.end(), gpu) == devices.end()) {
      TORCH_WARN(
          "ddp: set_random_state: the state has no generator of ",
          gpu,
          ", which this process uses, but of ",
          c10::Join(", ", state.keys()),
          ": ",
          gpu,
          " does not continue its random numbers");
    }
  }
}

} // namespace

State random_state() {
  State state;
  state.insert("cpu", state_of(at::kCPU));
  for (const auto index : used_gpus()) {
    const c10::Device device(at::kCUDA, index);
    state.insert(device.str(), state_of(device));
  }
  return state;
}

std::vector<c10::Device> detail::generators_for(
    const std::vector<c10::Device>& saved,
    const std::vector<c10::DeviceIndex>& used_gpus) {
  auto devices = saved;
  if (used_gpus.size() == 1 &&
      std::count_if(saved.begin(), saved.end(), is_gpu) == 1) {
    *std::find_if(devices.begin(), devices.end(), is_gpu) =
        c10::Device(at::kCUDA, used_gpus[0]);
  }
  return devices;
}

void set_random_state(const State& state) {
  for_generators(state, [](at::Generator& generator, const at::Tensor& own) {
    generator.set_state(own);
  });
  warn_of_others(state);
}

void detail::check_random_state(const State& state) {
  for_generators(state, [](at::Generator& generator, const at::Tensor& own) {
    generator.clone().set_state(own);
  });
}

} // namespace ddp
