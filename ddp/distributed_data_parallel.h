#pragma once

#include <ddp/module_state.h>
#include <ddp/reducer.h>
#include <ddp/wrapped_module.h>

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <utility>

namespace ddp {
namespace detail {

/// The module type behind `Net`, which may be a module or a module holder.
template <typename Net, bool is_holder>
struct ContainedModule {
  using type = Net;
};
template <typename Net>
struct ContainedModule<Net, true> {
  using type = typename Net::ContainedType;
};

} // namespace detail

/// The module behind `DistributedDataParallel`; see there.
template <typename Net>
class DistributedDataParallelImpl : public torch::nn::Module,
                                    public WrappedModule {
 public:
  using Contained = typename detail::
      ContainedModule<Net, torch::detail::is_module_holder<Net>::value>::type;

  DistributedDataParallelImpl(
      std::shared_ptr<Contained> net,
      const ProcessGroup& group,
      const ReducerOptions& options = {})
      : module_(register_module("module", std::move(net))),
        group_(group.duplicate()),
        broadcast_buffers_(options.broadcast_buffers()),
        reducer_(module_, group, options) {}

  /// The wrapped module's `forward`, with its arguments and result. Where
  /// gradients will follow (grad mode is on, and no `no_sync` guard lives) it
  /// first gives every rank rank 0's buffers, which makes it collective.
  template <typename... Arguments>
  decltype(auto) forward(Arguments&&... arguments) {
    if (broadcast_buffers_ && at::GradMode::is_enabled() &&
        reducer_.synchronizes()) {
      ddp::broadcast_buffers(*module_, group_);
    }
    return module_->forward(std::forward<Arguments>(arguments)...);
  }

  /// The wrapped module, for saving and for use without communication.
  const std::shared_ptr<Contained>& module() const {
    return module_;
  }

  /// See `Reducer::no_sync`. Must enclose the forward too, as in Python.
  [[nodiscard]] Reducer::NoSyncGuard no_sync() {
    return reducer_.no_sync();
  }

  Reducer& reducer() {
    return reducer_;
  }

  torch::nn::Module& wrapped() override {
    return *module_;
  }
  const torch::nn::Module& wrapped() const override {
    return *module_;
  }

 private:
  std::shared_ptr<Contained> module_;
  ProcessGroup group_;
  bool broadcast_buffers_;
  Reducer reducer_;
};

/// Wraps a module as Python's DistributedDataParallel does: `model->forward()`
/// takes and returns what `Net`'s does, gradients are averaged during
/// `backward()`, buffers follow rank 0's, and parameter names begin with
/// "module.".
///
///     ddp::DistributedDataParallel<Net> model(net, group);
///
/// `net` is a `std::shared_ptr<Net>`, or a module holder `Net`. It is not
/// cloned, and needs no `clone()`. Construction and, in training, `forward` are
/// collective. See `Reducer` for what is averaged, compared and thrown.
template <typename Net>
class DistributedDataParallel
    : public torch::nn::ModuleHolder<DistributedDataParallelImpl<Net>> {
 public:
  using Impl = DistributedDataParallelImpl<Net>;

  DistributedDataParallel(
      std::shared_ptr<typename Impl::Contained> net,
      const ProcessGroup& group,
      const ReducerOptions& options = {})
      : torch::nn::ModuleHolder<Impl>(
            std::make_shared<Impl>(std::move(net), group, options)) {}

  template <
      typename Holder,
      typename =
          std::enable_if_t<torch::detail::is_module_holder<Holder>::value>>
  DistributedDataParallel(
      const Holder& net,
      const ProcessGroup& group,
      const ReducerOptions& options = {})
      : DistributedDataParallel(net.ptr(), group, options) {}
};

} // namespace ddp
