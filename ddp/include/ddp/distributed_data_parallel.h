#pragma once

#include <ddp/internal/forward_state.h>
#include <ddp/module_state.h>
#include <ddp/reducer.h>

#include <c10/util/ScopeExit.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <utility>

namespace ddp {
/// The module that `DistributedDataParallel` holds; see that class.
template <typename Net>
class DistributedDataParallelImpl : public torch::nn::Module,
                                    public WrappedModule {
 public:
  /// The module's type, without its holder.
  using Contained = typename detail::
      ContainedModule<Net, torch::detail::is_module_holder<Net>::value>::type;

  /// See `DistributedDataParallel`.
  DistributedDataParallelImpl(
      std::shared_ptr<Contained> net,
      const ProcessGroup& group,
      const ReducerOptions& options = {})
      : module_(register_module("module", std::move(net))),
        forward_state_(module_, group, options) {}

  /// Calls the wrapped module's `forward`, and returns the result.
  ///
  /// Collective if it first broadcasts rank 0's buffers, as
  /// `ReducerOptions().buffer_sync` selects: by default, as in Python, in the
  /// first pass and in each pass after one with gradients. The first pass under
  /// `NoGradGuard` after a training step is thus collective; later ones are
  /// not. To evaluate on one rank, call `module()` or set
  /// `BufferSync::kTrainingForward`.
  ///
  /// If all parameters are on the group's device, the call moves tensors inside
  /// the arguments (see `visit_tensors`) to that device. An argument with
  /// tensors on other devices is replaced with a copy, which exists until
  /// `forward` returns. Throws `c10::ValueError` if an argument cannot be
  /// copied, or remains on a device without the module's tensors.
  template <typename... Arguments>
  decltype(auto) forward(Arguments&&... arguments) {
    forward_state_.begin();
    const auto end = c10::make_scope_exit([this] { forward_state_.end(); });
    return forward_inputs(detail::ModuleInput<Arguments&&>(
        std::forward<Arguments>(arguments), forward_state_.input_device())...);
  }

  /// The wrapped module, to save it or to use it without communication.
  const std::shared_ptr<Contained>& module() const {
    return module_;
  }

  /// See `Reducer::step_in_backward`.
  void step_in_backward(torch::optim::Optimizer& optimizer) {
    reducer().step_in_backward(optimizer);
  }

  /// See `Reducer::no_sync`. The guard must enclose the forward pass.
  [[nodiscard]] Reducer::NoSyncGuard no_sync() {
    return reducer().no_sync();
  }

  /// See `Reducer::join`.
  [[nodiscard]] Join join(const JoinOptions& options = {}) {
    return reducer().join(options);
  }

  /// The Reducer that averages the gradients.
  Reducer& reducer() {
    return forward_state_.reducer();
  }

  torch::nn::Module& wrapped() override {
    return *module_;
  }
  /// The wrapped module.
  const torch::nn::Module& wrapped() const override {
    return *module_;
  }

 private:
  template <typename... Inputs>
  decltype(auto) forward_inputs(Inputs&&... inputs) {
    using Output = decltype(module_->forward(inputs.get()...));
    forward_state_.check_devices(inputs.value()...);
    if constexpr (has_tensors_v<Output>) {
      Output output = module_->forward(inputs.get()...);
      if (forward_state_.gradients_will_follow()) {
        detail::OutputAnchors anchors;
        visit_tensors(output, anchors);
        forward_state_.anchor(anchors);
      }
      if constexpr (std::is_rvalue_reference_v<Output>) {
        return std::move(output);
      } else {
        return output;
      }
    } else {
      forward_state_.anchor_unseen();
      return module_->forward(inputs.get()...);
    }
  }

  std::shared_ptr<Contained> module_;
  detail::ForwardState forward_state_;
};

/// Wraps a module as Python's DistributedDataParallel does. `model->forward()`
/// takes and returns the same types as `Net`'s `forward`. `backward()` averages
/// gradients, ranks get rank 0's buffers, and parameter names begin with
/// "module.".
///
///     ddp::DistributedDataParallel<Net> model(net, group);
///
/// `net` is a `std::shared_ptr<Net>`, or a module holder `Net`. The module is
/// not cloned. Construction is collective; `forward` may be. `Reducer`
/// documents the averaging, the comparisons and the errors.
template <typename Net>
class DistributedDataParallel
    : public torch::nn::ModuleHolder<DistributedDataParallelImpl<Net>> {
 public:
  using Impl = DistributedDataParallelImpl<Net>; ///< The held module.

  /// Wraps a module. Collective.
  [[nodiscard]] DistributedDataParallel(
      std::shared_ptr<typename Impl::Contained> net,
      const ProcessGroup& group,
      const ReducerOptions& options = {})
      : torch::nn::ModuleHolder<Impl>(
            std::make_shared<Impl>(std::move(net), group, options)) {}

  /// Wraps the module in a holder. Collective.
  template <
      typename Holder,
      typename =
          std::enable_if_t<torch::detail::is_module_holder<Holder>::value>>
  [[nodiscard]] DistributedDataParallel(
      const Holder& net,
      const ProcessGroup& group,
      const ReducerOptions& options = {})
      : DistributedDataParallel(net.ptr(), group, options) {}
};

} // namespace ddp
