#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace ddp {

/// Parses JSON from an untrusted source. Returns nullopt if the text is not
/// JSON, or is nested so deeply that recursion could overflow the stack.
inline std::optional<nlohmann::json> parse_bounded_json(
    const std::string& text) {
  using nlohmann::json;
  constexpr int deepest = 64;
  struct TooDeep {};
  const auto check = [](int depth, json::parse_event_t, json&) {
    return depth <= deepest ? true : throw TooDeep();
  };
  try {
    std::optional<json> value = json::parse(text, check, false);
    if (value->is_discarded()) {
      return std::nullopt;
    }
    return value;
  } catch (const TooDeep&) {
    return std::nullopt;
  }
}

} // namespace ddp
