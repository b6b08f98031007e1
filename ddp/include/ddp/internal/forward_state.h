#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <ddp/internal/export.h>
#include <ddp/internal/module_inputs.h>
#include <ddp/internal/output_anchors.h>
#include <ddp/module_state.h>
#include <ddp/process_group.h>
#include <ddp/reducer.h>
#include <ddp/reducer_options.h>

#include <functional>
#include <memory>
#include <optional>

namespace ddp::detail {

/// The part of `DistributedDataParallel` that does not depend on the module's
/// type: the work around each forward pass, and the state between passes.
class DDP_API ForwardState {
 public:
  /// Collective.
  ForwardState(
      std::shared_ptr<torch::nn::Module> module,
      const ProcessGroup& group,
      const ReducerOptions& options);

  ForwardState(const ForwardState&) = delete;
  ForwardState& operator=(const ForwardState&) = delete;

  /// Begins a forward pass. Collective if it broadcasts rank 0's buffers; see
  /// `BufferSync`.
  void begin();

  /// Ends a forward pass, even one that threw.
  void end() noexcept;

  /// Whether the backward pass of a forward pass that begins now would
  /// communicate.
  bool gradients_will_follow() const;

  /// Makes backward passes through these outputs communicate.
  void anchor(const OutputAnchors& outputs);

  /// For an output type whose tensors cannot be visited: makes each later
  /// backward pass communicate, as with an attached Reducer.
  void anchor_unseen();

  Reducer& reducer() {
    return reducer_;
  }

  /// The device to which arguments are moved; none if they are not moved.
  std::optional<c10::Device> input_device() const {
    return input_device_;
  }

  /// Throws `c10::ValueError` for arguments that are not on the module's
  /// device.
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
  Reducer reducer_;
  std::function<NamedTensors()> buffers_;
  ProcessGroup group_;
  BufferSync buffer_sync_;
  bool broadcasts_buffers_;
  /// Python's `require_forward_param_sync`.
  bool sync_next_ = true;
  at::Tensor first_parameter_;
  std::optional<c10::Device> input_device_;
};

/// The module type of `Net`, which may be a module or a module holder.
template <typename Net, bool is_holder>
struct ContainedModule {
  using type = Net;
};
template <typename Net>
struct ContainedModule<Net, true> {
  using type = typename Net::ContainedType;
};

} // namespace ddp::detail
