#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <ddp/internal/export.h>
#include <ddp/process_group.h>
#include <torch/arg.h>

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace ddp {

/// Python's names and defaults.
struct GradScalerOptions {
  TORCH_ARG(double, init_scale) = 65536.;
  /// What the scale is multiplied by after `growth_interval` steps in a row
  /// without infinity or NaN; > 1.
  TORCH_ARG(double, growth_factor) = 2.;
  /// What it is multiplied by after a step with one; < 1.
  TORCH_ARG(double, backoff_factor) = .5;
  TORCH_ARG(int64_t, growth_interval) = 2000;
  /// Off: everything passes through, and `step` is the optimizer's.
  TORCH_ARG(bool, enabled) = true;
};

/// Keeps gradients of half precision from becoming zero: Python's
/// `torch.amp.GradScaler`, for LibTorch's optimizers, on the CPU and on CUDA.
///
/// ```
/// ddp::GradScaler scaler;
/// ...
///   scaler.scale(loss).backward();
///   scaler.unscale_(optimizer);          // only where gradients are looked at
///   reducer.clip_grad_norm(1.0);
///   scaler.step(optimizer);              // none where a gradient is infinite
///   scaler.update();
/// ```
///
/// The mean of gradients of which one is infinite or NaN is so on all ranks, so
/// after a backward with a `Reducer` all skip the same steps. Where ranks have
/// gradients of their own (ignored parameters, sharded optimizers, steps under
/// `no_sync`), pass the group: then ranks agree, by an all-reduce of one number
/// in each `unscale_`.
///
/// Not together with `Reducer::step_in_backward`. Throws `c10::Error` where
/// calls come in the wrong order, as Python does. Not thread-safe. Source:
/// pytorch/torch/amp/grad_scaler.py.
class DDP_API GradScaler {
 public:
  explicit GradScaler(
      const GradScalerOptions& options = {},
      ProcessGroup group = {});

  /// The output, or each of them, times the scale.
  at::Tensor scale(const at::Tensor& output);
  std::vector<at::Tensor> scale(const std::vector<at::Tensor>& outputs);

  /// Divides the gradients of the optimizer's parameters by the scale, in
  /// place, and looks for infinity and NaN. `step` does so where it was not
  /// called. Collective if a group was passed. Throws `c10::ValueError` if a
  /// gradient is of half precision: parameters have to be of single precision.
  void unscale_(torch::optim::Optimizer& optimizer);

  /// Lets the optimizer make its step unless a gradient is infinite or NaN.
  /// Returns whether it did. Waits for the gradients where they are on a GPU.
  /// Without a closure: the optimizer would unscale after each of its calls.
  bool step(torch::optim::Optimizer& optimizer);

  /// Makes the scale what the steps since the last `update` ask for, or
  /// `new_scale`. Call it once, after the steps of all optimizers.
  void update(std::optional<double> new_scale = std::nullopt);

  /// The scale; 1 where it is not enabled. Waits for a GPU.
  double get_scale() const;

  bool is_enabled() const {
    return options_.enabled();
  }

  /// Scale, options and count by Python's names; empty if it is not enabled.
  /// For `TrainingState::add`, after `update`.
  c10::IValue state_dict() const;

  /// Takes over what `state_dict`, or Python's, returned. If it is not enabled,
  /// nothing. Throws `c10::Error` for a state that is empty, or no scaler's;
  /// then nothing has changed.
  void load_state_dict(const c10::IValue& state);

 private:
  enum class Stage { kReady, kUnscaled, kStepped };
  struct PerOptimizer {
    Stage stage = Stage::kReady;
    at::Tensor found_inf; ///< none where no gradient was looked at
  };

  void start(c10::Device device);
  void check_started(const char* operation) const;
  at::Tensor unscale_gradients(torch::optim::Optimizer& optimizer) const;

  GradScalerOptions options_;
  ProcessGroup group_;
  at::Tensor scale_; ///< from the first `scale` on
  at::Tensor growth_tracker_;
  int64_t init_growth_tracker_ = 0;
  std::unordered_map<torch::optim::Optimizer*, PerOptimizer> optimizers_;
};

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
