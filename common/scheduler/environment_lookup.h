#pragma once

#include <functional>
#include <optional>
#include <string>

namespace ddp {

/// The value of an environment variable; none if it is unset.
using EnvironmentLookup =
    std::function<std::optional<std::string>(const char* name)>;

} // namespace ddp
