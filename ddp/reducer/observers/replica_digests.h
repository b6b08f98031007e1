#pragma once

#include <ddp/module_state.h>
#include <ddp/process_group.h>
#include <ddp/reducer/core/reduction_observer.h>

namespace c10d {
class Store;
}

// Each rank leaves digests in the store, and the last one to come compares all.
// No one waits, nothing throws, and where a rank does not come nothing is said.
namespace ddp::detail {

/// Warns where all ranks have one digest of their first gradients: then they
/// had the same data.
class FirstGradients final : public ReductionObserver {
 public:
  /// In the backwards up to this one. One alone may not depend on the data: a
  /// penalty's, or of a weight of 0.
  static constexpr int64_t kSteps = 2;

  FirstGradients(
      c10::intrusive_ptr<c10d::Store> store,
      const ProcessGroup& group);

  void on_begin(const Reduction& reduction) override {
    watches_ = reduction.step <= kSteps;
  }
  bool watches_parameters() const override {
    return watches_;
  }
  void on_own_gradient(
      const ParameterState& parameter,
      const at::Tensor& gradient) override;
  void on_all_launched(const Reduction& reduction) override;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  ProcessGroup group_;
  bool watches_ = false;
  /// The same in any order.
  uint64_t digest_ = 0;
};

/// Warns where ranks that have trained for `step` steps hold other parameters,
/// by the first that differs. Costs a pass over them. The process that hosts
/// the store gives the others up to a second to come.
void compare_last_parameters(
    const c10::intrusive_ptr<c10d::Store>& store,
    const ProcessGroup& group,
    const NamedTensors& parameters,
    int64_t step,
    bool hosts_store);

} // namespace ddp::detail
