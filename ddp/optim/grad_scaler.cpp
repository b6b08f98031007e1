#include <ddp/amp.h>

#include <ddp/backends/capture.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/reducer/buckets/conflicts.h>
#include <ddp/reducer/observers/step_in_backward.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

#include <cmath>
#include <map>
#include <unordered_set>

namespace ddp {
namespace {

// Keys of the state; Python's.
constexpr const char* kScale = "scale";
constexpr const char* kGrowthFactor = "growth_factor";
constexpr const char* kBackoffFactor = "backoff_factor";
constexpr const char* kGrowthInterval = "growth_interval";
constexpr const char* kGrowthTracker = "_growth_tracker";

c10::IValue entry(const c10::IValue& state, const char* key) {
  DDP_CHECK_VALUE(
      state.isGenericDict() && state.toGenericDict().contains(key) &&
          state.toGenericDict().at(key).isScalar(),
      "GradScaler::load_state_dict: the state has no number '{}': was it saved "
      "by a GradScaler?",
      key);
  return state.toGenericDict().at(key);
}

void check_scale(double scale) {
  DDP_CHECK_VALUE(
      scale > 0 && std::isfinite(scale),
      "GradScaler: the scale is {}, expected a finite number > 0",
      scale);
}

void check(const GradScalerOptions& options) {
  check_scale(options.init_scale());
  DDP_CHECK_VALUE(
      options.growth_factor() > 1,
      "GradScaler: growth_factor is {}, expected a number > 1",
      options.growth_factor());
  DDP_CHECK_VALUE(
      options.backoff_factor() > 0 && options.backoff_factor() < 1,
      "GradScaler: backoff_factor is {}, expected a number > 0 and < 1",
      options.backoff_factor());
  DDP_CHECK_VALUE(
      options.growth_interval() > 0,
      "GradScaler: growth_interval is {}, expected 1 or more",
      options.growth_interval());
}

/// Throws if the optimizer steps in backward, since the optimizer would step
/// again.
void check_steps_after_backward(const torch::optim::Optimizer& optimizer) {
  detail::check_no_conflict(
      detail::Feature::kGradScaler,
      detail::Feature::kStepInBackward,
      detail::is_stepped_in_backward(optimizer));
}

/// The values of a gradient that are scaled.
at::Tensor values_of(const at::Tensor& gradient) {
  DDP_CHECK_VALUE(
      gradient.scalar_type() != at::kHalf,
      "GradScaler: a half-precision gradient would underflow when divided by "
      "the scale. Keep the parameters in single precision, and let autocast "
      "convert.");
  return gradient.is_sparse() ? gradient._values() : gradient;
}

/// The gradients of each device and dtype, each once: tied weights may be
/// listed several times.
std::map<std::string, std::vector<at::Tensor>> gradients_by_kind(
    const torch::optim::Optimizer& optimizer) {
  std::map<std::string, std::vector<at::Tensor>> kinds;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      if (parameter.grad().defined() &&
          seen.insert(parameter.unsafeGetTensorImpl()).second) {
        const auto values = values_of(parameter.grad());
        kinds[c10::str(values.device(), values.scalar_type())].push_back(
            values);
      }
    }
  }
  return kinds;
}

} // namespace

GradScaler::GradScaler(const GradScalerOptions& options, ProcessGroup group)
    : options_(options), group_(std::move(group)) {
  check(options_);
}

void GradScaler::start(c10::Device device) {
  if (!scale_.defined()) {
    backends::check_not_capturing(
        device,
        "GradScaler's first scale(loss) creates the scale, and each replay "
        "would reset it: call scale(loss) once before the capture");
    const at::NoGradGuard no_grad;
    const auto on = at::TensorOptions().device(device);
    scale_ = at::full({}, options_.init_scale(), on.dtype(at::kFloat));
    growth_tracker_ = at::full({}, init_growth_tracker_, on.dtype(at::kInt));
  }
}

at::Tensor GradScaler::scale(const at::Tensor& output) {
  if (!options_.enabled()) {
    return output;
  }
  start(output.device());
  // The host reads a copy on the CPU.
  const bool non_blocking = !output.is_cpu();
  return output * scale_.to(output.device(), non_blocking);
}

std::vector<at::Tensor> GradScaler::scale(
    const std::vector<at::Tensor>& outputs) {
  std::vector<at::Tensor> result;
  for (const auto& output : outputs) {
    result.push_back(scale(output));
  }
  return result;
}

void GradScaler::check_started(const char* operation) const {
  DDP_CHECK(
      scale_.defined(),
      "GradScaler: {} was called before the first scale(loss)",
      operation);
  backends::check_not_capturing(
      scale_.device(),
      "GradScaler's unscale_(), step() and update() need the host: call them "
      "after each replay");
}

/// Returns 1 if a gradient is not finite, otherwise 0, on the scale's device;
/// undefined without gradients.
at::Tensor GradScaler::unscale_gradients(
    torch::optim::Optimizer& optimizer) const {
  const auto inverse = scale_.to(at::kDouble).reciprocal().to(at::kFloat);
  at::Tensor found;
  for (const auto& [kind, gradients] : gradients_by_kind(optimizer)) {
    const auto device = gradients.front().device();
    auto here = at::zeros({}, inverse.options().device(device));
    at::_amp_foreach_non_finite_check_and_unscale_(
        gradients, here, inverse.to(device));
    here = here.to(scale_.device());
    found = found.defined() ? at::maximum(found, here) : here;
  }
  return found;
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled()) {
    return;
  }
  const detail::heartbeat::Activity activity("GradScaler::unscale_");
  check_started("unscale_()");
  check_steps_after_backward(optimizer);
  auto& state = optimizers_[&optimizer];
  DDP_CHECK(
      state.stage != Stage::kUnscaled,
      "GradScaler: unscale_() has already been called on this optimizer since "
      "the last update()");
  DDP_CHECK(
      state.stage != Stage::kStepped,
      "GradScaler: unscale_() is being called after step()");
  const at::NoGradGuard no_grad;
  state.found_inf = unscale_gradients(optimizer);
  if (group_.size() > 1) { // even without gradients here
    auto found = state.found_inf.defined()
        ? state.found_inf.to(group_.device())
        : at::zeros({}, scale_.options().device(group_.device()));
    group_.all_reduce(found, ReduceOp::kMax);
    state.found_inf = found.to(scale_.device());
  }
  state.stage = Stage::kUnscaled;
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled()) {
    check_steps_after_backward(optimizer);
    optimizer.step();
    return true;
  }
  check_started("step()");
  auto& state = optimizers_[&optimizer];
  DDP_CHECK(
      state.stage != Stage::kStepped,
      "GradScaler: step() has already been called since the last update()");
  if (state.stage == Stage::kReady) {
    unscale_(optimizer);
  }
  DDP_CHECK(
      state.found_inf.defined(),
      "GradScaler: the optimizer's parameters have no gradients");
  const bool finite = state.found_inf.item<float>() == 0;
  if (finite) {
    optimizer.step();
  }
  state.stage = Stage::kStepped;
  return finite;
}

void GradScaler::update(std::optional<double> new_scale) {
  if (!options_.enabled()) {
    return;
  }
  check_started("update()");
  const at::NoGradGuard no_grad;
  if (new_scale) {
    check_scale(*new_scale);
    scale_.fill_(*new_scale);
  } else {
    at::Tensor found;
    for (const auto& [optimizer, state] : optimizers_) {
      if (state.found_inf.defined()) {
        found = found.defined() ? at::maximum(found, state.found_inf)
                                : state.found_inf;
      }
    }
    DDP_CHECK(
        found.defined(),
        "GradScaler: update() was called before step() or unscale_()");
    at::_amp_update_scale_(
        scale_,
        growth_tracker_,
        found,
        options_.growth_factor(),
        options_.backoff_factor(),
        options_.growth_interval());
  }
  optimizers_.clear();
}

double GradScaler::get_scale() const {
  if (!options_.enabled()) {
    return 1;
  }
  return scale_.defined() ? scale_.item<float>() : options_.init_scale();
}

c10::IValue GradScaler::state_dict() const {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  if (options_.enabled()) {
    dict.insert(kScale, get_scale());
    dict.insert(kGrowthFactor, options_.growth_factor());
    dict.insert(kBackoffFactor, options_.backoff_factor());
    dict.insert(kGrowthInterval, options_.growth_interval());
    dict.insert(
        kGrowthTracker,
        growth_tracker_.defined() ? int64_t{growth_tracker_.item<int>()}
                                  : init_growth_tracker_);
  }
  return dict;
}

void GradScaler::load_state_dict(const c10::IValue& state) {
  plan_state_dict(state)();
}

std::function<void()> GradScaler::plan_state_dict(const c10::IValue& state) {
  if (!options_.enabled()) {
    return [] {};
  }
  DDP_CHECK(
      !state.isGenericDict() || !state.toGenericDict().empty(),
      "GradScaler::load_state_dict: the state is empty: was it saved by a "
      "disabled scaler?");
  const auto number = [&](const char* key) {
    return entry(state, key).toScalar();
  };
  const auto loaded = GradScalerOptions()
                          .init_scale(number(kScale).toDouble())
                          .growth_factor(number(kGrowthFactor).toDouble())
                          .backoff_factor(number(kBackoffFactor).toDouble())
                          .growth_interval(number(kGrowthInterval).toLong());
  const auto tracker = number(kGrowthTracker).toLong();
  check(loaded);
  return [this, loaded, tracker] {
    options_ = loaded;
    init_growth_tracker_ = tracker;
    if (scale_.defined()) {
      const at::NoGradGuard no_grad;
      scale_.fill_(options_.init_scale());
      growth_tracker_.fill_(tracker);
    }
  };
}

} // namespace ddp
