#include <ddp/failure/level.h>

#include <c10/util/Exception.h>

namespace ddp::debug {

Level level(const EnvironmentLookup& lookup) {
  const auto text = lookup("DDP_DEBUG").value_or("");
  if (text.empty() || text == "off") {
    return Level::kOff;
  }
  TORCH_CHECK_VALUE(
      text == "info" || text == "detail",
      "DDP_DEBUG='",
      text,
      "' in the environment is none of off, info and detail");
  return text == "info" ? Level::kInfo : Level::kDetail;
}

bool shows_frames() {
  return process_environment()("TORCH_SHOW_CPP_STACKTRACES") == "1" ||
      level() != Level::kOff;
}

} // namespace ddp::debug
