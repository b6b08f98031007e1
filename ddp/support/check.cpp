#include <ddp/internal/check.h>

#include <algorithm>
#include <cstdlib>

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

std::string fill_in(
    std::string_view form,
    std::initializer_list<std::string> values) {
  std::string text;
  for (const auto& value : values) {
    const auto hole = std::min(form.find("{}"), form.size());
    text.append(form.substr(0, hole)).append(value);
    form.remove_prefix(std::min(hole + 2, form.size()));
  }
  return text.append(form);
}

} // namespace ddp::detail
