#pragma once

#include <ddp/module_state.h>
#include <ddp/reducer/core/reduction_observer.h>
#include <ddp/reducer_options.h>

#include <functional>
#include <unordered_map>
#include <unordered_set>

namespace ddp::detail {

/// Finds trained tensors without a Reducer. A module in a plain `std::vector`,
/// or captured by a lambda, is not registered, so the gradients of its
/// parameters are not averaged across ranks.
class UnmanagedLeaves {
 public:
  /// `parameters` are the Reducer's parameters; `known` are leaves that must
  /// not be reported.
  UnmanagedLeaves(
      NamedTensors parameters,
      const std::vector<at::Tensor>& known);

  /// Inspects the graph of the backward pass on this thread and returns a
  /// report; empty without findings. Call this once per backward pass, in a
  /// hook of that pass or in a callback at its end. A leaf is reported once,
  /// when the backward pass of a second forward pass gives the leaf a gradient.
  /// Inputs, which are new tensors in each step, are thus not reported. Leaves
  /// for which `reduced_elsewhere` holds are left out. Costs a pass over the
  /// graph's nodes, and another pass if such leaves exist. Not thread-safe.
  std::string inspect(
      const std::function<bool(const at::Tensor&)>& reduced_elsewhere);

 private:
  bool is_met_again(const at::Tensor& leaf, uint64_t first_use);

  // The target of a weak pointer keeps its address, so no other tensor can be
  // mistaken for the target.
  using TensorSet = std::unordered_set<
      c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>>;

  NamedTensors parameters_;
  /// Leaves that need not be inspected again: the Reducer's leaves, known
  /// leaves and reported leaves.
  TensorSet settled_;
  /// Leaves reached so far, with the number of the first operation that used
  /// them.
  std::unordered_map<TensorSet::value_type, uint64_t> met_;
};

/// Records whether a Reducer still manages `leaf` although it has removed its
/// hook, as it does in a group of one after its checks.
void set_managed_without_hook(const at::Tensor& leaf, bool managed);

/// Reports unmanaged leaves in the first passes.
class LeafReport final : public ReductionObserver {
 public:
  /// `severity` must not be `kIgnore`.
  LeafReport(UnmanagedLeaves leaves, Severity severity);

  /// May throw `c10::Error`.
  void on_backward() override;

  /// Called in a forward pass while all of the Reducer's parameters are frozen,
  /// so that its backward pass is not inspected. `added` returns the module's
  /// other parameters that require gradients. May throw `c10::Error`.
  void on_frozen_forward(const std::function<NamedTensors()>& added);

 private:
  void tell(const std::string& report) const;

  std::optional<UnmanagedLeaves> leaves_;
  Severity severity_;
  int64_t backwards_ = 0;
  int64_t frozen_forwards_ = 0;
};

} // namespace ddp::detail
