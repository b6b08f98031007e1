#pragma once

#include <ddp/internal/export.h>
#include <ddp/process_group.h>

#include <iostream>
#include <sstream>

namespace ddp {

/// The sum of the ranks' values (a loss, a number of correct answers), in
/// double precision and in the order of ranks; equal on all ranks. Collective;
/// throws as `ProcessGroup::all_gather` does, and `c10::ValueError` on all
/// ranks if some called `mean`.
DDP_API double sum(double value, const ProcessGroup& group);

/// The mean: `sum` divided by the number of ranks. If ranks have different
/// numbers of samples, divide sums instead. Collective; throws as `sum` does.
DDP_API double mean(double value, const ProcessGroup& group);

/// Writes the values and a newline to standard output, on rank 0 only. Not
/// collective.
template <typename... Values>
void print(const ProcessGroup& group, const Values&... values) {
  if (group.rank() == 0) {
    std::ostringstream line;
    (line << ... << values);
    std::cout << line.str() << std::endl; // whole, even if others write
  }
}

/// Reports progress of this rank to ddprun, for --hang-timeout. Collectives and
/// a Reducer's steps report it automatically. Call it if a rank runs long
/// without either: after each replay of a CUDA graph, or regularly in an
/// evaluation.
///
/// A call takes a few nanoseconds, and has no effect without ddprun. Any thread
/// may call it.
DDP_API void report_progress() noexcept;

} // namespace ddp
