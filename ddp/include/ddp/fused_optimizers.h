#pragma once

#include <ddp/export.h>
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
/// Tensors that do not lie in memory as their parameter does are copied in each
/// step. `step` throws `c10::Error` for sparse gradients and complex
/// parameters, and where it is captured in a CUDA graph as the first one with
/// momentum.
class DDP_API FusedSGD : public torch::optim::SGD {
 public:
  using torch::optim::SGD::SGD;
  torch::Tensor step(LossClosure closure = nullptr) override;
};

/// `torch::optim::Adam`, likewise. No step may be captured in a CUDA graph: the
/// host counts them.
class DDP_API FusedAdam : public torch::optim::Adam {
 public:
  using torch::optim::Adam::Adam;
  torch::Tensor step(LossClosure closure = nullptr) override;
};

/// `torch::optim::AdamW`, likewise.
class DDP_API FusedAdamW : public torch::optim::AdamW {
 public:
  using torch::optim::AdamW::AdamW;
  torch::Tensor step(LossClosure closure = nullptr) override;
};

} // namespace ddp
