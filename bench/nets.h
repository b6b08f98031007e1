#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>

namespace bench {

/// A net, and this rank's batch for it. python_peer.py, or gpu_peer.py for
/// GPUs, has the same nets.
struct Net {
  std::shared_ptr<torch::nn::Module> module;
  std::function<torch::Tensor(const torch::Tensor&)> forward;
  torch::Tensor input;
};

/// "mlp200": 200 small layers, 3 MB of gradients in 400 parameters.
/// "mlp200_unused": mlp200, but forward skips every tenth layer.
/// "big100": 4 large layers, 105 MB of gradients.
/// "resnet18": a ResNet for images of 32x32, 45 MB of gradients.
/// "blocks": 2 transformer blocks of 512 channels, 25 MB.
/// "lstm": 2 layers of an LSTM of 256 channels, 4 MB; 32 time steps.
/// For GPUs:
/// "wide4096": 4 large layers, 268 MB of gradients.
/// "resnet50": a ResNet with bottlenecks, for images of 64x64, 94 MB.
/// "transformer": 6 blocks of 1024 channels, 302 MB.
/// Throws `c10::ValueError` for another name.
Net make_net(const std::string& name);

} // namespace bench
