#include <ddp/reducer/observers/module_membership.h>

#include <ddp/internal/check.h>
#include <ddp/reducer/core/gradient_hook.h>

#include <algorithm>
#include <limits>
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
  if (!current_ || is_gone()) {
    return; // other modules may have the layers of a released module
  }
  auto idle = reduction.unused;
  size_t holders = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].tensor.requires_grad()) {
      idle.push_back(i);
    }
  }
  for (const size_t index : idle) {
    holders += parameters_[index].tensor.use_count();
  }
  const bool may_be_replaced = idle != checked_ || holders < holders_;
  holders_ = holders;
  if (!may_be_replaced) {
    return;
  }
  checked_ = std::move(idle);
  const auto now = current_().tensors;
  const auto of_module = set_of(now);
  const auto left =
      std::find_if(checked_.begin(), checked_.end(), [&](size_t index) {
        return !has(of_module, parameters_[index].tensor);
      });
  if (left == checked_.end()) {
    return;
  }
  TensorSet known;
  for (const auto& parameter : parameters_) {
    known.insert(parameter.tensor.unsafeGetTensorImpl());
  }
  const bool has_new =
      std::any_of(now.begin(), now.end(), [&](const auto& tensor) {
        return tensor.requires_grad() && !has(known, tensor);
      });
  DDP_CHECK(
      !has_new,
      "{} has no gradient, and no longer belongs to the Reducer's module: "
      "construct the Reducer after replacing layers, and a new Reducer after "
      "each later replacement",
      parameters_[*left].name());
  holders_ = std::numeric_limits<size_t>::max(); // a new layer may come later
}

NamedTensors ModuleMembership::added(
    const std::vector<at::Tensor>& known,
    bool trained) const {
  NamedTensors result;
  if (!owned_ || is_gone()) {
    return result;
  }
  const auto before = set_of(known);
  const auto now = current_();
  for (size_t i = 0; i < now.names.size(); ++i) {
    const auto& tensor = now.tensors[i];
    const bool counts =
        trained ? tensor.grad().defined() : tensor.requires_grad();
    if (counts && !gradient_listener(tensor) && !has(before, tensor)) {
      result.append(now.names[i], tensor);
    }
  }
  return result;
}

} // namespace ddp::detail
