#pragma once

#include <ATen/ATen.h>
#include <ddp/internal/check.h>
#include <ddp/support/containers.h>

#include <optional>
#include <tuple>

namespace ddp::detail {

/// Sets fields from Python's; throws errors about invalid ones.
class LoadedFields {
 public:
  /// `parameter`: the tensors' dtype and device, and, with `same_shape`, shape.
  LoadedFields(
      const c10::impl::GenericDict& dict,
      std::string where,
      at::Tensor parameter,
      bool same_shape)
      : dict_(dict),
        where_(std::move(where)),
        parameter_(std::move(parameter)),
        same_shape_(same_shape) {}

  template <typename Value>
  void operator()(const char* name, Value& value) {
    const auto found = find(name);
    check(found.has_value(), name, "is missing");
    load(name, *found, value);
  }
  template <typename Value>
  void optional(const char* name, Value& value) {
    const auto found = find(name);
    if (found && !found->isNone()) {
      load(name, *found, value);
    } else {
      value = Value();
    }
  }
  void step(const char* name, int64_t& value) {
    (*this)(name, value);
  }
  void fixed(const char* name, bool value) const {
    const auto found = find(name);
    check(
        !found || !found->isBool() || found->toBool() == value,
        name,
        value ? "is False, which this optimizer does not support"
              : "is True, which this optimizer does not support");
  }

 private:
  void check(bool good, const char* name, const std::string& what) const {
    DDP_CHECK_VALUE(
        good, "load_optimizer_state: {}: '{}' {}", where_, name, what);
  }

  std::optional<c10::IValue> find(const char* name) const {
    const auto found = dict_.find(name);
    return found == dict_.end() ? std::nullopt
                                : std::optional<c10::IValue>(found->value());
  }

  double number(const char* name, const c10::IValue& value) const {
    check(
        value.isDouble() || value.isInt() || value.isBool() ||
            (value.isTensor() && value.toTensor().defined() &&
             value.toTensor().numel() == 1),
        name,
        "is no number");
    return value.isTensor() ? value.toTensor().item<double>()
        : value.isBool()    ? static_cast<double>(value.toBool())
                            : value.toScalar().toDouble();
  }

  void load(const char* name, const c10::IValue& saved, double& value) const {
    value = number(name, saved);
  }
  void load(const char* name, const c10::IValue& saved, int64_t& value) const {
    value = static_cast<int64_t>(number(name, saved));
  }
  void load(const char* name, const c10::IValue& saved, bool& value) const {
    value = number(name, saved) != 0;
  }
  void load(
      const char* name,
      const c10::IValue& saved,
      std::tuple<double, double>& value) const {
    std::vector<c10::IValue> pair;
    if (saved.isTuple()) {
      pair = saved.toTupleRef().elements();
    } else if (saved.isList()) {
      pair = saved.toListRef().vec();
    }
    check(pair.size() == 2, name, "is no pair");
    value = {number(name, pair[0]), number(name, pair[1])};
  }
  void load(const char* name, const c10::IValue& saved, std::string& value)
      const {
    check(saved.isString(), name, "is no text");
    value = saved.toStringRef();
  }
  void load(const char* name, const c10::IValue& saved, at::Tensor& value)
      const {
    if (saved.isNone()) { // in a list
      value = at::Tensor();
      return;
    }
    check(saved.isTensor() && saved.toTensor().defined(), name, "is no tensor");
    const auto& tensor = saved.toTensor();
    check(
        !same_shape_ || tensor.sizes() == parameter_.sizes(),
        name,
        detail::format(
            "has shape {}, but its parameter {}",
            tensor.sizes(),
            parameter_.sizes()));
    value = tensor.detach().to(
        parameter_.options().requires_grad(false),
        /*non_blocking=*/false,
        /*copy=*/true);
  }
  template <typename Value>
  void load(
      const char* name,
      const c10::IValue& saved,
      std::optional<Value>& value) const {
    if (saved.isNone()) {
      value.reset();
    } else {
      load(name, saved, value.emplace());
    }
  }
  template <typename Tensors>
  void load(const char* name, const c10::IValue& saved, Tensors& value) const {
    check(saved.isList(), name, "is no list");
    value.clear();
    for (const c10::IValue& element : saved.toListRef()) {
      load(name, element, value.emplace_back());
    }
  }

  c10::impl::GenericDict dict_;
  std::string where_;
  at::Tensor parameter_;
  bool same_shape_;
};

} // namespace ddp::detail
