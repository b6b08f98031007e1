#pragma once

#include <ddp/environment/environment.h>

namespace ddp::debug {

/// What DDP_DEBUG asks for.
enum class DebugLevel {
  kOff,
  /// "info": a record of the last collectives, and a line for each group and
  /// Reducer.
  kInfo,
  /// "detail": in addition the ranks' calls are compared before they run.
  kDetail
};

/// Throws `c10::ValueError` if DDP_DEBUG is none of "off", "info", "detail".
DebugLevel debug_level(const EnvironmentLookup& lookup = process_environment());

} // namespace ddp::debug
