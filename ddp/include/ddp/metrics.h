#pragma once

#include <ddp/internal/export.h>
#include <ddp/process_group.h>

#include <iostream>
#include <sstream>

namespace ddp {

/// Returns the sum of the ranks' values, such as a loss or a number of correct
/// answers, in double precision. Values are added in rank order, so the sum is
/// equal on all ranks. Collective. Throws as `ProcessGroup::all_gather` does,
/// and `c10::ValueError` on all ranks if some ranks called `mean`.
DDP_API double sum(double value, const ProcessGroup& group);

/// Returns the mean: `sum` divided by the number of ranks. If ranks have
/// different numbers of samples, divide two sums instead. Collective. Throws as
/// `sum` does.
DDP_API double mean(double value, const ProcessGroup& group);

/// Writes the values and a newline to standard output, on rank 0 only. Not
/// collective.
template <typename... Values>
void print(const ProcessGroup& group, const Values&... values) {
  if (group.rank() == 0) {
    std::ostringstream line;
    (line << ... << values);
    // One write, so that the output of other ranks does not split the line.
    std::cout << line.str() << std::endl;
  }
}

/// Reports this rank's progress to ddprun, for --hang-timeout. Collectives and
/// a Reducer's steps report progress automatically. Call this function if a
/// rank runs for a long time without a collective or a step: after each replay
/// of a CUDA graph, or regularly in an evaluation.
///
/// A call takes a few nanoseconds, and has no effect without ddprun. Any thread
/// may call this function.
DDP_API void report_progress() noexcept;

} // namespace ddp
