#pragma once

#include <ddp/process_group.h>
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

/// Nobody leaves a meeting before everybody has come: so each bounds the
/// offset of clock `own` to clock `first` from both sides. Both must be of the
/// same meetings, one at least.
ClockOffset clock_offset(
    const std::vector<Meeting>& first,
    const std::vector<Meeting>& own);

/// Throws `c10::ValueError` unless `text` is like "12" or "10-12".
StepRange parse_steps(const std::string& text);

/// The options with what the environment says of timelines filled in.
ReducerOptions with_timeline_variables(ReducerOptions options);

/// This rank's times of some backwards, as a file that `ddp-timeline` reads.
class TimelineFile {
 public:
  /// None unless the options name a folder, which is made. `reducer` is a name
  /// of the Reducer that all ranks have. Throws `c10::ValueError`.
  static std::optional<TimelineFile> make(
      const ReducerOptions& options,
      const std::string& reducer);

  StepRange steps() const {
    return steps_;
  }

  bool has_clock() const {
    return clock_.has_value();
  }
  /// Compares the ranks' clocks. Collective.
  void measure_clock(const ProcessGroup& group);

  /// `began` is what the times count from.
  void add(const Timeline& timeline, Recorder::Clock::time_point began);

  /// Writes what has been added, unless that was done. Warns where it cannot.
  void write(const ProcessGroup& group);

 private:
  std::string folder_;
  StepRange steps_;
  std::string reducer_;
  std::optional<ClockOffset> clock_;
  std::vector<std::pair<Timeline, Recorder::Clock::time_point>> recorded_;
};

} // namespace ddp::detail
