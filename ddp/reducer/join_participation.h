#pragma once

#include <ddp/join.h>
#include <ddp/reducer/core/reduction_observer.h>

namespace ddp {

struct ReducerImpl;

/// A Reducer's part in a `Join`: reports this rank's steps to the ranks without
/// inputs, and on a rank without inputs runs the same steps with zeros.
class JoinParticipation final : public Joinable,
                                public detail::ReductionObserver {
 public:
  explicit JoinParticipation(ReducerImpl& reducer) : reducer_(reducer) {}

  /// Adds the ranks without inputs to the reduction that begins.
  void on_open(detail::Participants& participants) override;

  /// Reports the collectives at the end of a reduction. If Reducers share the
  /// backward pass, ranks without inputs delay this end until the report.
  void on_finalize(const detail::Reduction& reduction) override;

  /// Returns the rank whose buffers the wrapper's forward broadcasts, if any;
  /// ranks without inputs then call `forward_main_hook`.
  int64_t notify_forward(bool gives_buffers);
  std::function<void(int64_t root)> forward_main_hook;
  std::function<void()> after_join;

 private:
  void main_hook(const JoinStep& step) override;
  void complete_main_hook() override;
  bool overlaps() const override {
    return true;
  }
  void post_hook(int64_t root) override;
  void check_wait(const ProcessGroup& group) override;
  detail::Participants participants_of(const JoinStep& step) const;

  ReducerImpl& reducer_;
  /// Whether this rank reduced without inputs in this `Join`.
  bool had_no_inputs_ = false;
};

} // namespace ddp
