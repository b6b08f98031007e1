#include <ddp/process_group/wait_warning.h>

#include <ddp/internal/check.h>
#include <ddp/support/detached_task.h>

namespace ddp::detail {

WaitWarning::WaitWarning(
    std::chrono::milliseconds after,
    const std::string& who,
    const std::string& call) {
  const auto wait = [end = end_.get_future().share(), after, who, call] {
    if (end.wait_for(after) != std::future_status::ready) {
      warn_of_wait(after, who, call);
    }
  };
  try {
    start_detached(wait);
  } catch (const std::exception&) { // no thread can start: no warning
  }
}

void warn_of_wait(
    std::chrono::milliseconds time,
    const std::string& who,
    const std::string& call) {
  TORCH_WARN(detail::format(
      "ddp: {} has waited for {} s in {}",
      who,
      static_cast<double>(time.count()) / 1000.0,
      call));
}

} // namespace ddp::detail
