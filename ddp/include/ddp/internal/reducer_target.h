#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/internal/export.h>
#include <torch/nn/pimpl.h>
#include <torch/ordered_dict.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace torch::nn {
class Module;
}
namespace torch::jit {
struct Module;
}

namespace ddp {
struct ReducerOptions;
}

namespace ddp::detail {

struct TargetState;

/// The target of a Reducer; each kind of target converts implicitly to this
/// class.
class DDP_API ReducerTarget {
 public:
  /* implicit */ ReducerTarget(
      const std::shared_ptr<torch::nn::Module>& module);
  /* implicit */ ReducerTarget(torch::nn::Module& module);
  /* implicit */ ReducerTarget(const torch::jit::Module& module);
  /* implicit */ ReducerTarget(
      const torch::OrderedDict<std::string, at::Tensor>& parameters);
  /* implicit */ ReducerTarget(const std::vector<at::Tensor>& parameters);
  /* implicit */ ReducerTarget(std::initializer_list<at::Tensor> parameters);

  template <typename Net>
  /* implicit */ ReducerTarget(const std::shared_ptr<Net>& module)
      : ReducerTarget(std::shared_ptr<torch::nn::Module>(module)) {}

  template <
      typename Holder,
      typename =
          std::enable_if_t<torch::detail::is_module_holder<Holder>::value>>
  /* implicit */ ReducerTarget(const Holder& module)
      : ReducerTarget(module.ptr()) {}

  /// Throws `c10::ValueError` if options contain unknown names, the module is
  /// null, or a tensor in a list is not a leaf that requires a gradient.
  TargetState state(const ReducerOptions& options) const;

 private:
  std::function<TargetState(const ReducerOptions&)> state_;
};

} // namespace ddp::detail
