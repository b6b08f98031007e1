#pragma once

#include <ddp/export.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

namespace ddp {

/// `torch::optim::Adam` that computes what Python's `torch.optim.Adam` does on
/// the CPU, to the last bit.
///
/// LibTorch's takes the averages of the gradients in another way, so that a
/// training differs from Python's by about 1e-7 in each step. Options and state
/// are LibTorch's. `step` throws `c10::Error` for sparse gradients. Source:
/// Kingma and Ba, https://arxiv.org/abs/1412.6980, as PyTorch computes it.
class DDP_API Adam : public torch::optim::Adam {
 public:
  using torch::optim::Adam::Adam;
  torch::Tensor step(LossClosure closure = nullptr) override;
};

/// `torch::optim::AdamW`, likewise: the weights decay by themselves and not by
/// way of the gradients (Loshchilov and Hutter,
/// https://arxiv.org/abs/1711.05101).
class DDP_API AdamW : public torch::optim::AdamW {
 public:
  using torch::optim::AdamW::AdamW;
  torch::Tensor step(LossClosure closure = nullptr) override;
};

} // namespace ddp
