#pragma once

#include <ddp/internal/check.h>
#include <ddp/reducer/buckets/parameter_state.h>

#include <algorithm>

namespace ddp::detail {

/// Determines which gradients may arrive again before the outermost backward
/// pass ends, since activation checkpointing runs inner backward passes. The
/// engine's numbers identify the passes.
class NestedBackwards {
 public:
  /// With `static_graph`, a gradient arrives equally often in each step.
  explicit NestedBackwards(bool static_graph) : static_graph_(static_graph) {}

  /// Records that a reduction begins in backward pass `task`, or outside any
  /// pass (-1). A pass that is older than reduced passes contains these passes:
  /// nesting is so deep that the engine changed threads (see EndOfBackward).
  void begin(int task) {
    deep_ = deep_ || (task >= 0 && task < newest_);
  }

  void arrive(ParameterState& parameter, int task) {
    DDP_CHECK(
        !deep_ || parameter.device == device_,
        "a backward pass inside a backward pass (activation checkpointing) "
        "ended on {}, but the pass around it reached {} on {}: place the "
        "parameters of a checkpoint on its output's device",
        device_,
        parameter.name(),
        parameter.device);
    device_ = parameter.device;
    ++parameter.arrivals;
    parameter.task = std::max(parameter.task, task);
    newest_ = std::max(newest_, task);
  }

  /// Also true until the first backward pass that reached the parameter is
  /// reduced.
  bool may_come_again(const ParameterState& parameter) const {
    return parameter.expected_arrivals == 0 || parameter.nested || deep_;
  }

  /// Call this at the end of backward pass `outermost`. Gradients from an inner
  /// pass may arrive more often in another step, unless `static_graph` is set.
  void record(std::vector<ParameterState>& parameters, int outermost) const {
    if (newest_ <= outermost || static_graph_) {
      return;
    }
    for (auto& parameter : parameters) {
      parameter.nested = parameter.nested ||
          (parameter.arrivals > 0 && parameter.task > outermost);
    }
  }

 private:
  bool static_graph_;
  /// The newest backward pass in which a gradient arrived.
  int newest_ = -1;
  c10::Device device_ = at::kCPU; ///< of the last gradient
  /// Whether backward passes nest so deeply that one pass can have several
  /// reductions.
  bool deep_ = false;
};

} // namespace ddp::detail
