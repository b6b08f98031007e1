#pragma once

#include <ddp/process_group.h>
#include <ddp/reducer/core/reduction_observer.h>

#include <future>

namespace ddp::detail {

/// Compares, within a backward pass, the parameters that the ranks add or leave
/// out. A rank without such parameters does not call `compare`, and detects
/// other ranks' calls while it waits for its buckets.
class BackwardComparison final : public ReductionObserver {
 public:
  /// `store` is a Reducer's part of the group's store, and may be null.
  BackwardComparison(
      c10::intrusive_ptr<c10d::Store> store,
      const ProcessGroup& group);

  /// Waits until the other ranks reach the same point of backward pass `step`
  /// with the same parameter `indices`, which `noun` describes. Throws
  /// `c10::Error` if a rank does not. Collective. If ranks may wait for a rank
  /// without inputs, which comes to this point early, waits only if the
  /// parameters differ.
  void compare(
      int64_t step,
      const std::string& noun,
      const std::vector<ParameterState>& parameters,
      const std::vector<size_t>& indices);

  /// Sets whether another rank may compare parameters while this rank does not.
  void expect(bool others) {
    expects_others_ = others;
  }
  void on_begin(const Reduction& reduction) override {
    current_ = reduction.step;
    waited_for_ = reduction.waited_for;
  }
  /// Throws `WaitFailure` if another rank waits in `compare`, in this or the
  /// previous backward pass, and this rank has not called `compare`.
  void on_long_wait() override;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  ProcessGroup group_;
  /// The last backward pass in which this rank called `compare`.
  int64_t step_ = 0;
  int64_t current_ = 0;
  bool waited_for_ = false;
  bool expects_others_ = false;
  /// The store's pending answer about the other ranks.
  std::future<std::string> answer_;
};

} // namespace ddp::detail
