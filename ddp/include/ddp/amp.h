#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <ddp/internal/export.h>
#include <ddp/process_group.h>
#include <torch/arg.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace ddp {

/// Options of `GradScaler`, with Python's names and defaults.
struct GradScalerOptions {
  /// The scale before the first update.
  TORCH_ARG(double, init_scale) = 65536.;
  /// The scale's factor after `growth_interval` finite steps in a row; > 1.
  TORCH_ARG(double, growth_factor) = 2.;
  /// The scale's factor after a step with infinity or NaN; < 1.
  TORCH_ARG(double, backoff_factor) = .5;
  /// The number of finite steps in a row after which the scale grows.
  TORCH_ARG(int64_t, growth_interval) = 2000;
  /// If false, values do not change, and `step` always steps the optimizer.
  TORCH_ARG(bool, enabled) = true;
};

/// Keeps half-precision gradients from becoming zero: Python's
/// `torch.amp.GradScaler`, for LibTorch's optimizers, on the CPU and on CUDA.
///
/// ```
/// ddp::GradScaler scaler;
/// ...
///   scaler.scale(loss).backward();
///   scaler.unscale_(optimizer);          // only to inspect or clip gradients
///   reducer.clip_grad_norm(1.0);
///   scaler.step(optimizer);              // skipped if a gradient is infinite
///   scaler.update();
/// ```
///
/// If one rank's gradient is infinite or NaN, so is the mean on all ranks.
/// After a backward pass with a `Reducer`, all ranks thus skip the same steps.
/// If gradients differ between ranks (ignored parameters, sharded optimizers,
/// local SGD, `no_sync`), pass the group. Ranks then agree by an all-reduce of
/// one number in each `unscale_`, which no `Join` allows. A rank without inputs
/// misses updates: after a `Join`, give all ranks a new scaler with one scale.
///
/// Cannot be combined with `Reducer::step_in_backward`. Throws `c10::Error` for
/// calls in the wrong order, as Python does. Not thread-safe. Source:
/// pytorch/torch/amp/grad_scaler.py.
class DDP_API GradScaler {
 public:
  /// Throws `c10::ValueError` for options out of range. Not collective.
  explicit GradScaler(
      const GradScalerOptions& options = {},
      ProcessGroup group = {});

  /// The output times the scale.
  at::Tensor scale(const at::Tensor& output);
  /// Each of the outputs times the scale.
  std::vector<at::Tensor> scale(const std::vector<at::Tensor>& outputs);

  /// Divides the gradients of the optimizer's parameters by the scale, in
  /// place, and checks them for infinity and NaN. `step` calls `unscale_` if
  /// needed. Collective if a group was passed. Throws `c10::ValueError` if a
  /// gradient has half precision.
  void unscale_(torch::optim::Optimizer& optimizer);

  /// Steps the optimizer unless a gradient is infinite or NaN, and returns
  /// whether the optimizer stepped. Waits for a GPU. Takes no closure, since
  /// each call would need another unscaling. Collective if a group was passed.
  bool step(torch::optim::Optimizer& optimizer);

  /// Adapts the scale to the steps since the last `update`, or sets
  /// `new_scale`. Call `update` once, after the steps of all optimizers.
  void update(std::optional<double> new_scale = std::nullopt);

  /// The scale; 1 if the scaler is not enabled. Waits for a GPU.
  double get_scale() const;

  /// `GradScalerOptions::enabled`.
  bool is_enabled() const {
    return options_.enabled();
  }

  /// The scale, options and counter, by Python's names; empty if not enabled.
  /// Call this method after `update`.
  c10::IValue state_dict() const;

  /// Loads the result of `state_dict` here or in Python. Has no effect if not
  /// enabled. Throws `c10::Error` for a state that is empty or was not saved by
  /// a scaler; the scaler is then unchanged.
  void load_state_dict(const c10::IValue& state);
  /// Checks a state as `load_state_dict` does; returns a function to load it.
  std::function<void()> plan_state_dict(const c10::IValue& state);

 private:
  enum class Stage { kReady, kUnscaled, kStepped };
  struct PerOptimizer {
    Stage stage = Stage::kReady;
    at::Tensor found_inf; ///< undefined if no gradient was checked
  };

  void start(c10::Device device);
  void check_started(const char* operation) const;
  at::Tensor unscale_gradients(torch::optim::Optimizer& optimizer) const;

  GradScalerOptions options_;
  ProcessGroup group_;
  at::Tensor scale_; ///< undefined before the first `scale`
  at::Tensor growth_tracker_;
  int64_t init_growth_tracker_ = 0;
  std::unordered_map<torch::optim::Optimizer*, PerOptimizer> optimizers_;
};

/// While a guard exists, operators of this thread on `device` that tolerate the
/// lower precision compute in `dtype` (`kHalf` or `kBFloat16`), as with
/// Python's `torch.autocast(device, dtype)`.
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
/// Parameters and gradients stay in single precision. Guards can be nested. Use
/// one guard per forward pass: weights converted within a guard are not
/// converted again. All threads share converted weights: if a thread uses the
/// net while another thread trains it, give that thread a copy of the net, or
/// call `at::autocast::set_autocast_cache_enabled(false)` on that thread.
class DDP_API AutocastGuard {
 public:
  /// Throws `c10::ValueError` for any other `dtype`.
  [[nodiscard]] AutocastGuard(c10::DeviceType device, c10::ScalarType dtype);
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;
  /// Restores the former state; the outermost guard drops converted weights.
  ~AutocastGuard();

 private:
  c10::DeviceType device_;
  bool was_enabled_;
  c10::ScalarType former_dtype_;
};

} // namespace ddp
