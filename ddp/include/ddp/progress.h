#pragma once

#include <ddp/export.h>
namespace ddp {

/// Tells ddprun that this rank makes progress, for --hang-timeout. Collectives
/// and the steps of a Reducer do so by themselves. To be called where a rank
/// does without them for long: after each replay of a CUDA graph has ended, or
/// now and then in an evaluation.
///
/// Costs some nanoseconds, and does nothing else without ddprun. May be called
/// by any thread.
DDP_API void report_progress() noexcept;

} // namespace ddp
