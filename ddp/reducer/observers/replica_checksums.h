#pragma once

#include <ddp/module_state.h>
#include <ddp/process_group.h>
#include <ddp/reducer/core/reduction_observer.h>

namespace c10d {
class Store;
}

// Each rank stores checksums, and the last rank to arrive compares all
// checksums. No rank waits or throws, and no rank warns unless all ranks
// arrive.
namespace ddp::detail {

/// Warns if all ranks have the same checksum of their first gradients, and thus
/// the same data.
class FirstGradients final : public ReductionObserver {
 public:
  /// The number of compared backward passes. A single pass might not depend on
  /// the data, for example a pass for a penalty, or a pass with a weight of 0.
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
  /// A checksum that does not depend on the order of gradients.
  uint64_t checksum_ = 0;
};

/// Warns if parameters differ between ranks after `step` steps, and names the
/// first parameter that differs. Reads all parameters once. The process that
/// hosts the store waits up to a second for the other ranks.
void compare_last_parameters(
    const c10::intrusive_ptr<c10d::Store>& store,
    const ProcessGroup& group,
    const NamedTensors& parameters,
    int64_t step,
    bool hosts_store);

} // namespace ddp::detail
