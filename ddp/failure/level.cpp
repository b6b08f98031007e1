#include <ddp/failure/level.h>

#include <ddp/internal/check.h>

namespace ddp::debug {

Level level(const EnvironmentLookup& lookup) {
  const auto text = lookup("DDP_DEBUG").value_or("");
  if (text.empty() || text == "off") {
    return Level::kOff;
  }
  DDP_CHECK_VALUE(
      text == "info" || text == "detail",
      "DDP_DEBUG='{}' in the environment is none of off, info and detail",
      text);
  return text == "info" ? Level::kInfo : Level::kDetail;
}

} // namespace ddp::debug
