#include <ddp/amp.h>

#include <ddp/internal/check.h>

#include <ATen/autocast_mode.h>

namespace ddp {

namespace autocast = at::autocast;

AutocastGuard::AutocastGuard(c10::DeviceType device, c10::ScalarType dtype)
    : device_(device),
      was_enabled_(autocast::is_autocast_enabled(device)),
      former_dtype_(autocast::get_autocast_dtype(device)) {
  DDP_CHECK_VALUE(
      dtype == c10::kHalf || dtype == c10::kBFloat16,
      "AutocastGuard: the dtype is {}, expected half or bfloat16",
      dtype);
  autocast::set_autocast_enabled(device, true);
  autocast::set_autocast_dtype(device, dtype);
  autocast::increment_nesting();
}

AutocastGuard::~AutocastGuard() {
  if (autocast::decrement_nesting() == 0) {
    autocast::clear_cache();
  }
  autocast::set_autocast_enabled(device_, was_enabled_);
  autocast::set_autocast_dtype(device_, former_dtype_);
}

} // namespace ddp
