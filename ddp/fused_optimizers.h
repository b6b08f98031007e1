#pragma once

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

namespace ddp {

/// `torch::optim::SGD` in one pass: gradient, momentum and parameter are read
/// and written once, where LibTorch's step goes over memory for each term.
///
/// Options and state are LibTorch's, so schedulers and checkpoints know it. The
/// kernels, and so the bits, are those of Python's
/// `torch.optim.SGD(fused=True)`; they differ from LibTorch's in the last bit.
/// `step` throws `c10::Error` for sparse gradients, and where parameter and
/// gradient differ in strides.
class FusedSGD : public torch::optim::SGD {
 public:
  using torch::optim::SGD::SGD;
  torch::Tensor step(LossClosure closure = nullptr) override;
};

/// `torch::optim::Adam`, likewise.
class FusedAdam : public torch::optim::Adam {
 public:
  using torch::optim::Adam::Adam;
  torch::Tensor step(LossClosure closure = nullptr) override;
};

/// `torch::optim::AdamW`, likewise.
class FusedAdamW : public torch::optim::AdamW {
 public:
  using torch::optim::AdamW::AdamW;
  torch::Tensor step(LossClosure closure = nullptr) override;
};

} // namespace ddp
