#pragma once

#include <ddp/module_state.h>
#include <ddp/process_group.h>
#include <ddp/reducer/core/reduction_observer.h>

namespace c10d {
class Store;
}

// Each rank stores checksums, and the last rank to arrive compares all. No rank
// waits or throws, and without all ranks there is no warning.
namespace ddp::detail {

/// Warns if all ranks have the same checksum of their first gradients, and thus
/// the same data.
class FirstGradients final : public ReductionObserver {
 public:
  /// The number of compared backwards. A single backward might not depend on
  /// the data, for example of a penalty, or with a weight of 0.
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
  /// Independent of the order of gradients.
  uint64_t checksum_ = 0;
};

/// Warns if parameters differ between ranks after `step` steps, and names the
/// first that differs. Costs a pass over them. The process that hosts the store
/// waits up to a second for the others.
void compare_last_parameters(
    const c10::intrusive_ptr<c10d::Store>& store,
    const ProcessGroup& group,
    const NamedTensors& parameters,
    int64_t step,
    bool hosts_store);

} // namespace ddp::detail
