#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <ddp/export.h>
#include <ddp/internal/module_inputs.h>
#include <ddp/module_state.h>
#include <ddp/process_group.h>
#include <ddp/reducer.h>
#include <ddp/reducer_options.h>

#include <functional>
#include <memory>
#include <optional>

namespace ddp::detail {

/// What the wrapper does around each forward and remembers from one to the
/// next: the part of `DistributedDataParallel` that no type of module matters
/// to.
class DDP_API ForwardState {
 public:
  /// Collective. `reducer` tells what other ranks do while this one has no
  /// inputs.
  ForwardState(
      std::shared_ptr<torch::nn::Module> module,
      const ProcessGroup& group,
      const ReducerOptions& options,
      Reducer& reducer);

  ForwardState(const ForwardState&) = delete;
  ForwardState& operator=(const ForwardState&) = delete;

  /// To be called before each forward. Collective where it gives every rank
  /// rank 0's buffers, see `BufferSync`.
  void begin(Reducer& reducer);

  /// To be called after each forward, also one that threw.
  void end(const Reducer& reducer) noexcept;

  /// Whether the backward of a forward now would communicate.
  static bool gradients_will_follow(const Reducer& reducer);

  /// Where arguments are moved to; none if they stay where they are.
  std::optional<c10::Device> input_device() const {
    return input_device_;
  }

  /// Throws `c10::ValueError` for arguments that are not where the module is.
  template <typename... Arguments>
  void check_devices(const Arguments&... arguments) const {
    StrayTensors strays(first_parameter_.device());
    (strays.add(arguments), ...);
    if (!strays.found().empty()) {
      detail::check_devices(*module_, strays.found(), group_.rank());
    }
  }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  std::function<NamedTensors()> buffers_;
  ProcessGroup group_;
  BufferSync buffer_sync_;
  bool broadcasts_buffers_;
  /// In Python `require_forward_param_sync`.
  bool sync_next_ = true;
  at::Tensor first_parameter_;
  std::optional<c10::Device> input_device_;
};

/// Calls `begin` and, however the scope is left, `end`.
class ForwardScope {
 public:
  ForwardScope(ForwardState& state, Reducer& reducer)
      : state_(state), reducer_(reducer) {
    state_.begin(reducer_);
  }
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;
  ~ForwardScope() {
    state_.end(reducer_);
  }

 private:
  ForwardState& state_;
  Reducer& reducer_;
};

} // namespace ddp::detail
