#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/export.h>
#include <ddp/process_group.h>
#include <ddp/scatter_gather.h>
#include <ddp/wrapped_module.h>
#include <torch/arg.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

namespace ddp {

/// Options of `parallel_forward`.
struct ParallelForwardOptions {
  /// The rank whose input is forwarded.
  TORCH_ARG(int64_t, root) = 0;

  /// The rank that gets the result, or `kAllRanks`. Unset: `root`.
  TORCH_ARG(std::optional<int64_t>, destination);

  /// Whether `root`'s input is moved to the group's device, if it is elsewhere;
  /// without, that is an error.
  TORCH_ARG(bool, move_input) = true;
};

namespace detail {

/// What `parallel_forward` runs on each rank.
struct ShareForward {
  std::function<at::Tensor(const at::Tensor&)> run;
  /// Null for what is no module.
  const torch::nn::Module* module = nullptr;
};

template <typename Net, typename = void>
struct HasArrow : std::false_type {};
template <typename Net>
struct HasArrow<Net, std::void_t<decltype(std::declval<Net&>().operator->())>>
    : std::true_type {};

template <typename Net, typename = void>
struct HasForward : std::false_type {};
template <typename Net>
struct HasForward<
    Net,
    std::void_t<decltype(std::declval<Net&>().forward(
        std::declval<const at::Tensor&>()))>> : std::true_type {};

template <typename Net>
ShareForward share_forward(Net& net) {
  using Type = std::remove_const_t<Net>;
  if constexpr (torch::detail::is_module_holder<Type>::value) {
    return share_forward(*net.ptr()); // not const, though the holder may be
  } else if constexpr (HasArrow<Net>::value) {
    return share_forward(*net);
  } else if constexpr (std::is_base_of_v<WrappedModule, Net>) {
    return share_forward(net.module());
  } else if constexpr (HasForward<Net>::value) {
    ShareForward forward;
    forward.run = [&net](const at::Tensor& share) -> at::Tensor {
      return net.forward(share);
    };
    if constexpr (std::is_base_of_v<torch::nn::Module, Net>) {
      forward.module = &net;
    }
    return forward;
  } else {
    return {
        [&net](const at::Tensor& share) -> at::Tensor { return net(share); }};
  }
}

DDP_API at::Tensor parallel_forward(
    const ShareForward& forward,
    const at::Tensor& input,
    const ProcessGroup& group,
    const ParallelForwardOptions& options);

} // namespace detail

/// Forwards a batch that one rank has, each rank a share of it, without
/// gradients, and returns the joined output: Python's `DataParallel` for
/// inference, with a process to each device.
///
///     auto output = ddp::parallel_forward(net, input, group);
///
/// `net` is a module, a `shared_ptr` to one, a module holder, or what can be
/// called with a tensor; it takes shape [n, ...] and returns a tensor of shape
/// [m, ...]. Of a `DistributedDataParallel` the module inside runs. All ranks
/// pass their own, with equal parameters and buffers (`broadcast_module_state`,
/// `broadcast_buffers`) and in the same mode, usually `eval()`; none of it is
/// changed here. `input` and how it is split: see `scatter`. `net` is not run
/// where there are no rows, but on rank 0. The result: see `gather`.
///
/// Collective. What a rank finds wrong all throw, with its number, and the
/// group stays of use: `c10::ValueError` where `scatter` and `gather` do, where
/// the input is not on the group's device and may not be moved, and where all
/// parameters of a module are on another one; `c10::Error` with the first words
/// of what forward threw, once all ranks have run theirs.
///
/// Source: torch.nn.DataParallel's forward.
template <typename Net>
at::Tensor parallel_forward(
    Net&& net,
    const at::Tensor& input,
    const ProcessGroup& group,
    const ParallelForwardOptions& options = {}) {
  return detail::parallel_forward(
      detail::share_forward(net), input, group, options);
}

} // namespace ddp
