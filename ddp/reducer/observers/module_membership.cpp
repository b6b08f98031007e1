#include <ddp/reducer/observers/module_membership.h>

#include <ddp/internal/check.h>
#include <ddp/reducer/core/gradient_hook.h>

#include <unordered_set>

namespace ddp::detail {
namespace {

using TensorSet = std::unordered_set<const c10::TensorImpl*>;

TensorSet set_of(const std::vector<at::Tensor>& tensors) {
  TensorSet set;
  for (const auto& tensor : tensors) {
    set.insert(tensor.unsafeGetTensorImpl());
  }
  return set;
}

bool has(const TensorSet& set, const at::Tensor& tensor) {
  return set.count(tensor.unsafeGetTensorImpl()) > 0;
}

} // namespace

ModuleMembership::ModuleMembership(
    const std::vector<ParameterState>& parameters,
    std::function<NamedTensors()> current,
    std::optional<std::weak_ptr<torch::nn::Module>> owned)
    : parameters_(parameters),
      current_(std::move(current)),
      owned_(std::move(owned)) {}

void ModuleMembership::on_computed(const Reduction& reduction) {
  const auto& unused = reduction.unused;
  if (!current_ || is_gone() || unused == checked_) {
    return; // other modules may have the layers of a released module
  }
  checked_ = unused;
  const auto now = set_of(current_().tensors);
  size_t known = 0;
  for (const auto& parameter : parameters_) {
    known += has(now, parameter.tensor);
  }
  if (known == now.size()) {
    return; // layers may be missing, but none is new
  }
  for (const size_t index : unused) {
    DDP_CHECK(
        has(now, parameters_[index].tensor),
        "{} has no gradient, and no longer belongs to the Reducer's module: "
        "construct the Reducer after replacing layers, and a new Reducer "
        "after each later replacement",
        parameters_[index].name());
  }
}

NamedTensors ModuleMembership::added(
    const std::vector<at::Tensor>& known) const {
  NamedTensors result;
  if (!owned_ || is_gone()) {
    return result;
  }
  const auto before = set_of(known);
  const auto now = current_();
  for (size_t i = 0; i < now.names.size(); ++i) {
    const auto& tensor = now.tensors[i];
    if (tensor.grad().defined() && !gradient_listener(tensor) &&
        !has(before, tensor)) {
      result.append(now.names[i], tensor);
    }
  }
  return result;
}

} // namespace ddp::detail
