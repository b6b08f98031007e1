#include <ddp/environment/environment_variable.h>

#include <ddp/internal/check.h>

#include <charconv>

namespace ddp::detail {

std::optional<int64_t> integer_variable(
    const EnvironmentLookup& lookup,
    const char* name,
    int64_t min,
    int64_t max) {
  const auto text = lookup(name);
  if (!text) {
    return std::nullopt;
  }
  int64_t value = 0;
  const auto* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  DDP_CHECK_VALUE(
      error == std::errc() && stop == end && value >= min && value <= max,
      "{}='{}' in the environment is not an integer from {} to {}",
      name,
      *text,
      min,
      max);
  return value;
}

} // namespace ddp::detail
