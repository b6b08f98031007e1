#pragma once

#include <ATen/ATen.h>
#include <ddp/support/containers.h>

#include <deque>
#include <optional>
#include <tuple>

namespace ddp::detail {

/// Collects fields in Python's form.
class SavedFields {
 public:
  template <typename Value>
  void operator()(const char* name, const Value& value) {
    dict_.insert(name, to_ivalue(value));
  }
  template <typename Value>
  void optional(const char* name, const Value& value) {
    const auto saved = to_ivalue(value);
    if (!saved.isTensor() || saved.toTensor().defined()) {
      dict_.insert(name, saved);
    }
  }
  void step(const char* name, int64_t value) {
    dict_.insert(name, at::scalar_tensor(value, at::kFloat));
  }
  void fixed(const char* name, bool value) {
    dict_.insert(name, value);
  }

  c10::impl::GenericDict take() {
    return dict_;
  }

 private:
  template <typename Value>
  static c10::IValue to_ivalue(const Value& value) {
    return c10::IValue(value);
  }
  static c10::IValue to_ivalue(const std::tuple<double, double>& value) {
    return c10::ivalue::Tuple::create(
        {c10::IValue(std::get<0>(value)), c10::IValue(std::get<1>(value))});
  }
  static c10::IValue to_ivalue(const std::deque<at::Tensor>& tensors) {
    return list_of(tensors);
  }
  static c10::IValue to_ivalue(
      const std::optional<std::vector<at::Tensor>>& tensors) {
    return tensors ? list_of(*tensors) : c10::IValue();
  }
  template <typename Tensors>
  static c10::IValue list_of(const Tensors& tensors) {
    auto list = new_list();
    for (const auto& tensor : tensors) {
      list.push_back(tensor.defined() ? c10::IValue(tensor) : c10::IValue());
    }
    return list;
  }

  c10::impl::GenericDict dict_ = new_dict();
};

} // namespace ddp::detail
