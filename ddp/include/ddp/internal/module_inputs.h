#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <ddp/internal/export.h>
#include <ddp/tensor_traversal.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace ddp::detail {

/// A visitor that finds whether any tensor is not on `device`.
struct FindElsewhere {
  c10::Device device;
  bool found = false;

  void operator()(const at::Tensor& tensor) {
    found = found || (tensor.defined() && tensor.device() != device);
  }
};

/// A visitor that replaces tensors on other devices with copies on `device`.
struct DDP_API MoveTo {
  c10::Device device;

  void operator()(at::Tensor& tensor) const;
};

/// Whether a `T` can be copied; for a container, also whether its elements can.
template <typename T, typename = void>
struct IsCopyable : std::is_copy_constructible<T> {};
template <typename T>
struct IsCopyable<T, std::void_t<typename T::value_type>>
    : std::conjunction<
          std::is_copy_constructible<T>,
          IsCopyable<typename T::value_type>> {};

[[noreturn]] DDP_API void throw_not_copyable(
    const std::type_info& type,
    c10::Device device);

/// One argument of a `forward` call, as passed to the module. `get()` returns
/// `Argument`, a reference type: the caller's object or, if one of its tensors
/// is not on `device`, a copy with its tensors on `device`. Without a device,
/// `get()` always returns the caller's object. `value()` returns the same
/// object, const.
template <typename Argument, bool has_tensors = has_tensors_v<Argument>>
class ModuleInput {
 public:
  ModuleInput(Argument argument, std::optional<c10::Device> /*device*/)
      : argument_(static_cast<Argument>(argument)) {}

  Argument get() {
    return static_cast<Argument>(argument_);
  }
  const std::remove_reference_t<Argument>& value() const {
    return argument_;
  }

 private:
  Argument argument_;
};

template <typename Argument>
class ModuleInput<Argument, true> {
  using Value = std::remove_cv_t<std::remove_reference_t<Argument>>;

 public:
  ModuleInput(Argument argument, std::optional<c10::Device> device)
      : argument_(static_cast<Argument>(argument)) {
    if (device) {
      move_to(*device);
    }
  }

  Argument get() {
    return static_cast<Argument>(copy_ ? *copy_ : argument_);
  }
  const Value& value() const {
    return copy_ ? *copy_ : argument_;
  }

 private:
  static constexpr bool kCanCopy = std::is_lvalue_reference_v<Argument>
      ? IsCopyable<Value>::value
      : std::is_constructible_v<Value, Argument>;

  void move_to(c10::Device device) {
    FindElsewhere elsewhere{device};
    visit_tensors(std::as_const(argument_), elsewhere);
    if (!elsewhere.found) {
      return;
    }
    if constexpr (kCanCopy) {
      copy_.emplace(static_cast<Argument>(argument_));
      visit_tensors(*copy_, MoveTo{device});
    } else {
      throw_not_copyable(typeid(Value), device);
    }
  }

  Argument argument_;
  std::optional<Value> copy_;
};

/// A tensor in a `forward` call's arguments that is not on the module's device.
struct StrayTensor {
  size_t argument;
  size_t tensor; ///< The index among the argument's tensors.
  c10::Device device;
};

/// A visitor that collects the tensors of successive arguments that are not on
/// `device`, except CPU scalars, which operators accept with any device.
class StrayTensors {
 public:
  explicit StrayTensors(c10::Device device) : device_(device) {}

  template <typename Argument>
  void add(const Argument& argument) {
    tensor_ = 0;
    visit_tensors(argument, *this);
    ++argument_;
  }

  void operator()(const at::Tensor& tensor) {
    if (tensor.defined() && tensor.device() != device_ &&
        !(tensor.device().is_cpu() && tensor.dim() == 0)) {
      found_.push_back({argument_, tensor_, tensor.device()});
    }
    ++tensor_;
  }

  const std::vector<StrayTensor>& found() const {
    return found_;
  }

 private:
  c10::Device device_;
  size_t argument_ = 0;
  size_t tensor_ = 0;
  std::vector<StrayTensor> found_;
};

/// Whether tensors on `device` may be arguments of `module`: false if all its
/// parameters are on another device and no buffer is on `device`.
bool takes_inputs_on(const torch::nn::Module& module, c10::Device device);

/// Throws `c10::ValueError` if all parameters of `module` are on one device and
/// a stray tensor is neither on that device nor on any buffer's device.
DDP_API void check_devices(
    const torch::nn::Module& module,
    const std::vector<StrayTensor>& strays,
    int64_t rank);

} // namespace ddp::detail
