#pragma once

#include <ATen/core/ivalue.h>

#include <nlohmann/json.hpp>
#include <string>

namespace ddp::command {

/// JSON that keeps keys in the order in which they are set.
using Json = nlohmann::ordered_json;

/// A value without tensors as JSON; numbers that JSON cannot represent become
/// "nan", "inf" or "-inf".
Json json_of(const c10::IValue& value);

/// The JSON on one line. Bytes that are not UTF-8 are replaced.
std::string dump(const Json& json);

} // namespace ddp::command
