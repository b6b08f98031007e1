#include <ddp/failure/debug_level.h>

#include <ddp/internal/check.h>

namespace ddp::debug {

DebugLevel debug_level(const EnvironmentLookup& lookup) {
  const auto text = lookup("DDP_DEBUG").value_or("");
  if (text.empty() || text == "off") {
    return DebugLevel::kOff;
  }
  DDP_CHECK_VALUE(
      text == "info" || text == "detail",
      "DDP_DEBUG='{}' in the environment must be off, info or detail",
      text);
  return text == "info" ? DebugLevel::kInfo : DebugLevel::kDetail;
}

} // namespace ddp::debug
