#pragma once

#include <tests/support/catch.h>
#include <tests/support/nets.h>

#include <ddp/reducer.h>

namespace ddp::test {

/// Requires that the gradients are those that one process would compute from
/// the ranks' local ones; a gradient is undefined only if no rank has one. The
/// tolerances are those of `nearly_equal`.
inline void require_means(
    const ProcessGroup& group,
    const torch::nn::Module& net,
    const torch::nn::Module& local,
    double relative = 1.3e-6,
    double absolute = 1e-5) {
  const auto expected = average(group, local);
  const auto parameters = net.named_parameters();
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto& grad = parameters[i].value().grad();
    INFO(parameters[i].key());
    REQUIRE(
        (grad.defined() ? grad.allclose(expected[i], relative, absolute)
                        : expected[i].eq(0).all().item<bool>()));
  }
}

/// This rank's input: 1, 2, 3.
inline torch::Tensor own(
    const ProcessGroup& group,
    at::IntArrayRef sizes = {2}) {
  return torch::full(sizes, group.rank() + 1.0);
}

/// A net whose gradient is the mean of the ranks' inputs.
struct Scale : torch::nn::Module {
  torch::Tensor weight = register_parameter("weight", torch::ones({2}));

  torch::Tensor forward(const torch::Tensor& x, bool used = true) {
    return used ? x * weight : x * 2;
  }
};

/// Whether all elements of a tensor are `value`, except for rounding.
inline bool is(const torch::Tensor& tensor, double value) {
  return tensor.defined() &&
      nearly_equal(tensor, torch::full_like(tensor, value));
}

/// Options under which Python treats unused parameters differently.
inline std::vector<ReducerOptions> all_modes() {
  return {
      ReducerOptions(),
      ReducerOptions().find_unused_parameters(true),
      ReducerOptions().static_graph(true),
      ReducerOptions().gradient_as_bucket_view(true)};
}

/// A net with a Reducer, and a net with the same values and no Reducer, on the
/// group's device.
template <typename Net>
struct Twins {
  explicit Twins(
      const ProcessGroup& its_group,
      const ReducerOptions& options = {})
      : group(its_group), reducer(net, group, options) {
    copy_parameters(*net, *local);
  }

  /// Runs a backward pass of `loss` on both nets.
  template <typename Loss>
  void backward(const Loss& loss) const {
    loss(*net).backward();
    loss(*local).backward();
  }

  void reset() const {
    reset_gradients(*net);
    reset_gradients(*local);
  }

  void check(double relative = 1.3e-6, double absolute = 1e-5) const {
    require_means(group, *net, *local, relative, absolute);
  }

  std::shared_ptr<Net> make_net() const {
    auto made = std::make_shared<Net>();
    made->to(group.device());
    return made;
  }

  ProcessGroup group;
  std::shared_ptr<Net> net = make_net();
  std::shared_ptr<Net> local = make_net();
  Reducer reducer;
};

} // namespace ddp::test
