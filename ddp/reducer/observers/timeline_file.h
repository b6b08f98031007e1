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
  /// The maximum error of `offset`.
  std::chrono::nanoseconds error{};
};

/// The times at which a rank entered and left a collective that waits for all
/// ranks.
using SyncPoint = std::pair<int64_t, int64_t>;

/// Returns the offset of clock `own` from clock `first`. No rank leaves a
/// collective before all ranks have entered it, so each collective gives a
/// lower and an upper bound of the offset. Both lists must contain the same
/// collectives, at least one.
ClockOffset clock_offset(
    const std::vector<SyncPoint>& first,
    const std::vector<SyncPoint>& own);

/// Parses text such as "12" or "10-12". Throws `c10::ValueError` for other
/// text.
StepRange parse_steps(const std::string& text);

/// Returns the options with the environment's timeline settings filled in.
ReducerOptions with_timeline_variables(ReducerOptions options);

/// Writes this rank's times of some backward passes to a file that
/// `ddp-timeline` reads.
class TimelineFile final : public ReductionObserver {
 public:
  /// Creates the folder of the options. `reducer` is the Reducer's name, equal
  /// on all ranks. References must outlive this object. Throws
  /// `c10::ValueError`.
  TimelineFile(
      const ReducerOptions& options,
      const std::string& reducer,
      const ProcessGroup& group,
      Recorder& recorder,
      const CaptureCheck& capture);

  /// Records the times, compares the ranks' clocks at the first call, and
  /// writes the file after the last step.
  void on_end(const Reduction& reduction) override;

  /// Writes the recorded times, unless already written. Warns if the write
  /// fails.
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
