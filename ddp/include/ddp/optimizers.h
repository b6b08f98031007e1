#pragma once

#include <ATen/core/ivalue.h>
#include <ddp/internal/export.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

namespace ddp {

/// `torch::optim::Adam` with results bit-identical to those of Python's
/// `torch.optim.Adam` on the CPU.
///
/// LibTorch's Adam computes the averages of the gradients differently, so each
/// step differs from Python's by about 1e-7. Options and state are LibTorch's.
/// `step` throws `c10::Error` for sparse gradients. Source: Kingma and Ba,
/// https://arxiv.org/abs/1412.6980, as implemented in PyTorch.
class DDP_API Adam : public torch::optim::Adam {
 public:
  using torch::optim::Adam::Adam;
  /// Updates the parameters. Returns the result of `closure`, or an undefined
  /// tensor if there is none.
  torch::Tensor step(LossClosure closure = nullptr) override;
};

/// Like `Adam`, for `torch::optim::AdamW`: the weights decay directly, not
/// through the gradients (Loshchilov and Hutter,
/// https://arxiv.org/abs/1711.05101).
class DDP_API AdamW : public torch::optim::AdamW {
 public:
  using torch::optim::AdamW::AdamW;
  /// Updates the parameters. Returns the result of `closure`, or an undefined
  /// tensor if there is none.
  torch::Tensor step(LossClosure closure = nullptr) override;
};

/// `torch::optim::SGD` in one pass, which reads and writes each gradient,
/// momentum and parameter once. LibTorch's step passes over memory once per
/// term.
///
/// Options and state are LibTorch's, so schedulers and checkpoints work. The
/// kernels are those of Python's `torch.optim.SGD(fused=True)`, so results are
/// bit-identical to Python's; they differ from LibTorch's in the last bit. A
/// gradient whose memory layout differs from the parameter's is copied in each
/// step, a momentum once. `step` throws `c10::Error` for sparse gradients and
/// complex parameters, and if the first step with momentum is captured in a
/// CUDA graph.
class DDP_API FusedSGD : public torch::optim::SGD {
 public:
  using torch::optim::SGD::SGD;
  /// Updates the parameters. Returns the result of `closure`, or an undefined
  /// tensor if there is none.
  torch::Tensor step(LossClosure closure = nullptr) override;
};

/// Like `FusedSGD`, for `torch::optim::Adam`. No step may be captured in a CUDA
/// graph, since the host counts the steps.
class DDP_API FusedAdam : public torch::optim::Adam {
 public:
  using torch::optim::Adam::Adam;
  /// Updates the parameters. Returns the result of `closure`, or an undefined
  /// tensor if there is none.
  torch::Tensor step(LossClosure closure = nullptr) override;
};

/// Like `FusedAdam`, for `torch::optim::AdamW`.
class DDP_API FusedAdamW : public torch::optim::AdamW {
 public:
  using torch::optim::AdamW::AdamW;
  /// Updates the parameters. Returns the result of `closure`, or an undefined
  /// tensor if there is none.
  torch::Tensor step(LossClosure closure = nullptr) override;
};

/// The state of an optimizer in the layout of Python's
/// `Optimizer.state_dict()`:
///
///     {"state": {0: {"exp_avg": tensor, ...}, ...},
///      "param_groups": [{"lr": 0.1, ..., "params": [0, 1, ...]}]}
///
/// Dictionaries keep insertion order. Parameters are numbered across all
/// groups; parameters that were never updated have no state, except with
/// Adagrad. The result shares the optimizer's tensors. Supports
/// torch::optim::SGD, Adam, AdamW, RMSprop, Adagrad and LBFGS; throws
/// `c10::NotImplementedError` for others. Not collective.
DDP_API c10::IValue optimizer_state(const torch::optim::Optimizer& optimizer);

/// Loads a state from `optimizer_state` or Python's `state_dict()` into
/// `optimizer`: values and options, such as the learning rate.
///
/// Tensors are converted to their parameters' dtype and device. Options that
/// exist only in Python (`foreach`, `fused`, ...) are ignored, unless they
/// change the result (`maximize`). Throws `c10::ValueError` if an option that
/// changes the result is on, if groups, numbers of parameters or shapes differ,
/// or if an entry is missing; `optimizer` is then unchanged. Not collective.
DDP_API void load_optimizer_state(
    torch::optim::Optimizer& optimizer,
    const c10::IValue& state);

} // namespace ddp
