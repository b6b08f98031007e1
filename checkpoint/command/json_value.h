#pragma once

#include <ATen/core/ivalue.h>

#include <nlohmann/json.hpp>
#include <string>

namespace ddp::command {

/// Keys stay in the order in which they are set.
using Json = nlohmann::ordered_json;

/// A value without tensors; what JSON has no number for is "nan", "inf" or
/// "-inf".
Json json_of(const c10::IValue& value);

/// On one line. Bytes that are not UTF-8 are replaced.
std::string dump(const Json& json);

} // namespace ddp::command
