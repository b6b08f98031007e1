#pragma once

#include <ddp/reducer/buckets/parameter_state.h>

#include <algorithm>

namespace ddp::detail {

/// The gradients that may arrive again before the outermost backward ends,
/// since activation checkpointing runs backwards inside it. The engine's
/// numbers identify backwards.
class NestedBackwards {
 public:
  /// With `static_graph`, a gradient arrives equally often in each step.
  explicit NestedBackwards(bool static_graph) : static_graph_(static_graph) {}

  /// A reduction begins in backward `task`, or outside of any (-1). A backward
  /// that is older than reduced ones contains them: nesting is so deep that the
  /// engine changed threads (see EndOfBackward).
  void begin(int task) {
    deep_ = deep_ || (task >= 0 && task < newest_);
  }

  void arrive(ParameterState& parameter, int task) {
    ++parameter.arrivals;
    parameter.task = task;
    newest_ = std::max(newest_, task);
  }

  /// Also true until the first backward that reached the parameter is reduced.
  bool may_come_again(const ParameterState& parameter) const {
    return parameter.expected_arrivals == 0 || parameter.nested || deep_;
  }

  /// At the end of backward `outermost`: gradients from an inner backward may
  /// arrive more often in another step, unless `static_graph` is set.
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
  /// The newest backward in which a gradient arrived.
  int newest_ = -1;
  /// Whether backwards nest so deeply that one can have several reductions.
  bool deep_ = false;
};

} // namespace ddp::detail
