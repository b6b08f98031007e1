#pragma once

#include <ddp/environment/environment.h>

namespace ddp::detail {

/// The value of an integer variable. Throws `c10::ValueError` if it is anything
/// else than an integer from `min` to `max`.
std::optional<int64_t> integer_variable(
    const EnvironmentLookup& lookup,
    const char* name,
    int64_t min,
    int64_t max);

} // namespace ddp::detail
