#pragma once

#include <ddp/process_group.h>
#include <ddp/reducer/core/reduction_observer.h>

#include <future>

namespace ddp::detail {

/// Compares within a backward which parameters the ranks take in or leave out.
/// A rank that has nothing to compare does not come: it learns of the others
/// while it waits for its buckets.
class BackwardComparison final : public ReductionObserver {
 public:
  /// `store` is a Reducer's part of the group's, and may be null.
  BackwardComparison(
      c10::intrusive_ptr<c10d::Store> store,
      const ProcessGroup& group);

  /// Waits for the others to come to the same point of backward `step` with the
  /// same `indices` of parameters; `noun` says of what. Throws `c10::Error`
  /// where they do not. Collective.
  void compare(
      int64_t step,
      const std::string& noun,
      const std::vector<ParameterState>& parameters,
      const std::vector<size_t>& indices);

  /// Whether another rank may compare something that this one does not.
  void expect(bool others) {
    expects_others_ = others;
  }
  void on_begin(const Reduction& reduction) override {
    current_ = reduction.step;
  }
  /// Throws `WaitFailure` if another waits in `compare`, of this backward or of
  /// the one before, to which this rank has not come.
  void on_long_wait() override;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  ProcessGroup group_;
  /// The last one that this rank came to.
  int64_t step_ = 0;
  int64_t current_ = 0;
  bool expects_others_ = false;
  /// What the store was asked of the others, while it has not answered.
  std::future<std::string> answer_;
};

} // namespace ddp::detail
