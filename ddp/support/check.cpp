#include <ddp/internal/check.h>

#include <cstdlib>
#include <string_view>

namespace ddp::detail {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

} // namespace

bool shows_frames() {
  const auto debug = variable("DDP_DEBUG");
  return variable("TORCH_SHOW_CPP_STACKTRACES") == "1" || debug == "info" ||
      debug == "detail";
}

} // namespace ddp::detail
