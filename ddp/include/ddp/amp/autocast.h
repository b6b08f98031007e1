#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <ddp/export.h>

namespace ddp {

/// While one lives, this thread's operators on `device` compute in `dtype`
/// where that loses nothing that matters (`kHalf` or `kBFloat16`, chosen by
/// operator): Python's `with torch.autocast(device, dtype)`.
///
/// ```
/// torch::Tensor loss;
/// {
///   const ddp::AutocastGuard autocast(torch::kCUDA, torch::kHalf);
///   loss = loss_of(net->forward(input), target);
/// }
/// scaler.scale(loss).backward(); // outside
/// ```
///
/// Parameters and their gradients stay of single precision. Guards nest.
class DDP_API AutocastGuard {
 public:
  [[nodiscard]] AutocastGuard(c10::DeviceType device, c10::ScalarType dtype);
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;
  /// Puts back what was; the outermost forgets converted weights.
  ~AutocastGuard();

 private:
  c10::DeviceType device_;
  bool was_enabled_;
  c10::ScalarType former_dtype_;
};

} // namespace ddp
