#pragma once

#include <ddp/environment/environment.h>

namespace ddp::debug {

/// The level that DDP_DEBUG selects.
enum class DebugLevel {
  kOff,
  /// "info": keeps a record of the last collectives, and logs a line for each
  /// group and Reducer.
  kInfo,
  /// "detail": like "info"; in addition, ranks compare collectives before
  /// running them.
  kDetail
};

/// Returns `kOff` if DDP_DEBUG is unset or empty. Throws `c10::ValueError` for
/// a value other than "off", "info" or "detail".
DebugLevel debug_level(const EnvironmentLookup& lookup = process_environment());

} // namespace ddp::debug
