#pragma once

#include <ddp/join.h>
#include <ddp/reducer/core/reduction_observer.h>

namespace ddp {

struct ReducerImpl;

/// A Reducer's part in a `Join`: tells the ranks without inputs what this one
/// does, and on such a rank does the same with zeros.
class JoinParticipation final : public Joinable,
                                public detail::ReductionObserver {
 public:
  explicit JoinParticipation(ReducerImpl& reducer) : reducer_(reducer) {}

  /// The ranks without inputs take part in the reduction that begins.
  void on_open(detail::Participants& participants) override;

  /// Before collectives at the end of a reduction. If others share the
  /// backward, the ranks without inputs put ends off until they hear of one.
  void on_finish(const detail::Reduction& reduction) override;

  /// Which rank's buffers the wrapper's forward gives all ranks, if it does;
  /// those without inputs call `forward_main_hook` then.
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

  ReducerImpl& reducer_;
};

} // namespace ddp
