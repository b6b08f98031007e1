#pragma once

#include <ddp/environment/environment.h>

namespace ddp::debug {

/// The level that DDP_DEBUG selects.
enum class DebugLevel {
  kOff,
  /// "info": a record of the last collectives, and a line for each group and
  /// Reducer.
  kInfo,
  /// "detail": as "info"; in addition, ranks compare their calls before they
  /// run.
  kDetail
};

/// Throws `c10::ValueError` if DDP_DEBUG is none of "off", "info", "detail".
DebugLevel debug_level(const EnvironmentLookup& lookup = process_environment());

} // namespace ddp::debug
