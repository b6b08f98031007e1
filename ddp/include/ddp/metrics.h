#pragma once

#include <ddp/internal/export.h>
#include <ddp/process_group.h>

#include <iostream>
#include <sstream>

namespace ddp {

/// The sum of the ranks' values (a loss, a number of right answers), equal on
/// all ranks: in double precision, added in the order of the ranks. Collective;
/// throws as `ProcessGroup::all_gather` does, and `c10::ValueError` on all
/// ranks if some called `mean`.
DDP_API double sum(double value, const ProcessGroup& group);

/// The mean: `sum` divided by the number of ranks. If ranks have different
/// numbers of samples, divide sums instead. Collective; throws as `sum` does.
DDP_API double mean(double value, const ProcessGroup& group);

/// Writes the values one after the other and a newline to standard output, on
/// rank 0 only. Not collective.
template <typename... Values>
void print(const ProcessGroup& group, const Values&... values) {
  if (group.rank() == 0) {
    std::ostringstream line;
    (line << ... << values);
    std::cout << line.str() << std::endl; // whole, even if others write
  }
}

/// Reports to ddprun that this rank makes progress, for --hang-timeout.
/// Collectives and the steps of a Reducer do so automatically. Call it if a
/// rank runs long without them: after each replay of a CUDA graph, or regularly
/// in an evaluation.
///
/// Costs some nanoseconds, and has no effect without ddprun. Any thread may
/// call it.
DDP_API void report_progress() noexcept;

} // namespace ddp
