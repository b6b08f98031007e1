#pragma once

#include <ddp/join.h>

namespace ddp {

struct ReducerImpl;

/// A Reducer's part in a `Join`: tells the ranks without inputs what this one
/// does, and on such a rank does the same with zeros.
class JoinParticipation final : public Joinable {
 public:
  explicit JoinParticipation(ReducerImpl& reducer) : reducer_(reducer) {}

  /// Before a reduction: the ranks without inputs take part in it.
  void announce_reduction();

  /// Before the end of a reduction that communicates. Where others share the
  /// backward, the ranks without inputs put ends off until they hear of one.
  void announce_end();

  /// Which rank's buffers the wrapper's forward gives all ranks, if it does;
  /// those without inputs call `on_forward` then.
  int64_t announce_forward(bool gives_buffers);
  std::function<void(int64_t root)> on_forward;
  std::function<void()> on_end;

  /// Who takes part in this reduction, where inputs are uneven.
  const std::optional<JoinStep>& step() const {
    return step_;
  }
  /// Whether this rank has no inputs, and takes part with zeros.
  bool has_no_inputs() const {
    return has_no_inputs_;
  }

 private:
  void shadow(const JoinStep& step) override;
  void complete_shadow() override;
  bool overlaps() const override {
    return true;
  }
  void end_join(int64_t root) override;

  ReducerImpl& reducer_;
  std::optional<JoinStep> step_;
  bool has_no_inputs_ = false;
};

} // namespace ddp
