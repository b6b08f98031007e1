#pragma once

// The part of <ddp/parallel_forward.h> that runs on each rank.

#include <ATen/core/Tensor.h>
#include <ddp/module_state.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <type_traits>
#include <utility>

namespace ddp::detail {

/// The function that `parallel_forward` runs on each rank.
struct ShareForward {
  std::function<at::Tensor(const at::Tensor&)> run;
  /// The module; null for other callables.
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
    return share_forward(*net.ptr()); // non-const even if the holder is const
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

} // namespace ddp::detail
