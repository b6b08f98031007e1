#pragma once

#include <ddp/process_group.h>
#include <ddp/reducer/observers/capture_check.h>
#include <ddp/reducer/observers/recorder.h>
#include <ddp/reducer_options.h>
#include <ddp/statistics.h>

namespace ddp::detail {

/// How far a rank's clock is behind rank 0's.
struct ClockOffset {
  std::chrono::nanoseconds offset{};
  /// It is wrong by this at most.
  std::chrono::nanoseconds error{};
};

/// When a rank came to a collective that waits for all, and had been in it.
using Meeting = std::pair<int64_t, int64_t>;

/// No one leaves a meeting before everybody has come: so each bounds the offset
/// of clock `own` to clock `first` from both sides. Both must be of the same
/// meetings, one at least.
ClockOffset clock_offset(
    const std::vector<Meeting>& first,
    const std::vector<Meeting>& own);

/// Throws `c10::ValueError` unless `text` is like "12" or "10-12".
StepRange parse_steps(const std::string& text);

/// The options with what the environment says of timelines filled in.
ReducerOptions with_timeline_variables(ReducerOptions options);

/// This rank's times of some backwards, as a file that `ddp-timeline` reads.
class TimelineFile final : public ReductionObserver {
 public:
  /// Makes the folder that the options name. `reducer` is a name of the Reducer
  /// that all ranks have. The rest must live as long. Throws `c10::ValueError`.
  TimelineFile(
      const ReducerOptions& options,
      const std::string& reducer,
      const ProcessGroup& group,
      Recorder& recorder,
      const CaptureCheck& capture);

  bool ends_with_collectives() const override {
    return !clock_;
  }
  /// Takes in the times, the first time with the ranks' clocks compared, and
  /// writes after the last step.
  void on_end(const Reduction& reduction) override;

  /// Writes what was taken in, unless that was done. Warns where it cannot.
  void write();

 private:
  void measure_clock();

  std::string folder_;
  StepRange steps_;
  std::string reducer_;
  ProcessGroup group_;
  Recorder& recorder_;
  const CaptureCheck& capture_;
  std::optional<ClockOffset> clock_;
  std::vector<std::pair<Timeline, Recorder::Clock::time_point>> recorded_;
};

} // namespace ddp::detail
