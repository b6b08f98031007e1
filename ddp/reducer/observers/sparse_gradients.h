#pragma once

#include <ddp/process_group.h>
#include <ddp/reducer/buckets/parameter_state.h>

namespace ddp::detail {

/// The sparse gradients of a Reducer. They travel one by one over the CPU's
/// backend, gloo or mpi: NCCL does not know them.
class SparseGradients {
 public:
  /// `parameters` must live as long.
  SparseGradients(
      std::vector<ParameterState>& parameters,
      const ProcessGroup& group);

  /// Of the parameter with this index.
  void add(size_t index) {
    indices_.push_back(index);
  }
  bool empty() const {
    return indices_.empty();
  }
  /// Whether there is one that is averaged: its parameter is not frozen.
  bool any_managed() const;

  /// Starts to average what is managed. `check` looks at each gradient of this
  /// rank. One that `has_inputs` no more takes part with zeros.
  void launch(
      int64_t divisor,
      bool has_inputs,
      const std::function<void(const ParameterState&, const at::Tensor&)>&
          check);

  /// Waits for the sums.
  void wait() const;

  /// Gives the parameters the means.
  void hand_out();

 private:
  std::vector<ParameterState>& parameters_;
  ProcessGroup group_;
  std::vector<size_t> indices_;
};

} // namespace ddp::detail
