#pragma once

#include <ddp/process_group.h>
#include <ddp/reducer/observers/capture_check.h>
#include <ddp/reducer/observers/recorder.h>
#include <ddp/reducer_options.h>
#include <ddp/statistics.h>

namespace ddp::detail {

/// The lag of a rank's clock behind rank 0's.
struct ClockOffset {
  std::chrono::nanoseconds offset{};
  /// Its maximum error.
  std::chrono::nanoseconds error{};
};

/// The times at which a rank entered and left a collective that waits for all.
using SyncPoint = std::pair<int64_t, int64_t>;

/// No rank leaves such a collective before all have entered, so each gives a
/// lower and an upper bound of clock `own`'s offset to clock `first`. Both
/// lists must be of the same collectives, at least one.
ClockOffset clock_offset(
    const std::vector<SyncPoint>& first,
    const std::vector<SyncPoint>& own);

/// Throws `c10::ValueError` unless `text` is like "12" or "10-12".
StepRange parse_steps(const std::string& text);

/// The options with the environment's timeline settings filled in.
ReducerOptions with_timeline_variables(ReducerOptions options);

/// This rank's times of some backwards, as a file that `ddp-timeline` reads.
class TimelineFile final : public ReductionObserver {
 public:
  /// Creates the folder of the options. `reducer` is a name of the Reducer,
  /// equal on all ranks. References must outlive it. Throws `c10::ValueError`.
  TimelineFile(
      const ReducerOptions& options,
      const std::string& reducer,
      const ProcessGroup& group,
      Recorder& recorder,
      const CaptureCheck& capture);

  bool ends_with_collectives() const override {
    return !clock_;
  }
  /// Records the times, compares the ranks' clocks the first time, and writes
  /// after the last step.
  void on_end(const Reduction& reduction) override;

  /// Writes the recorded times, unless already written. Warns if it cannot.
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
