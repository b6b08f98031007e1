#pragma once

#include <ddp/reducer/core/reduction_observer.h>

namespace ddp::detail {

/// The sparse gradients of a Reducer. The CPU's backend, gloo or mpi, reduces
/// these gradients one at a time, since NCCL does not support sparse tensors.
class SparseGradients final : public ReductionObserver {
 public:
  /// `parameters` and `observers` must outlive this object.
  SparseGradients(
      std::vector<ParameterState>& parameters,
      const ProcessGroup& group,
      const ObserverList& observers);

  /// Adds the parameter with this index.
  void add(size_t index) {
    indices_.push_back(index);
  }
  bool empty() const {
    return indices_.empty();
  }
  /// Whether any parameter with a sparse gradient is not frozen.
  bool any_trainable() const;

  /// Starts to average the trainable gradients. Collective.
  void on_all_launched(const Reduction& reduction) override;
  /// Waits for the sums.
  void on_reduced() override;
  /// Sets the parameters' gradients to the means.
  void on_grads_populated() override;

 private:
  std::vector<ParameterState>& parameters_;
  ProcessGroup group_;
  const ObserverList& observers_;
  std::vector<size_t> indices_;
};

} // namespace ddp::detail
