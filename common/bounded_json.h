#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace ddp {

/// Parses JSON from an untrusted source. Returns nullopt if the text is not
/// JSON, or is nested so deeply that recursion could overflow the stack.
/// Without `fractions`, a number with a fraction or an exponent is no JSON
/// either: where a reader expects an integer, its conversion could be
/// undefined.
inline std::optional<nlohmann::json> parse_bounded_json(
    const std::string& text,
    bool fractions = true) {
  using nlohmann::json;
  constexpr int deepest = 64;
  struct Refused {};
  const auto check = [=](int depth, json::parse_event_t, const json& value) {
    return depth <= deepest && (fractions || !value.is_number_float())
        ? true
        : throw Refused();
  };
  try {
    std::optional<json> value = json::parse(text, check, false);
    if (value->is_discarded()) {
      return std::nullopt;
    }
    return value;
  } catch (const Refused&) {
    return std::nullopt;
  }
}

} // namespace ddp
