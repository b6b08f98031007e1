#include <tests/support/random_graph_reference.h>

#include <torch/torch.h>

#include <algorithm>

namespace ddp::test {
namespace {

bool is_narrow(const at::Tensor& parameter) {
  return parameter.element_size() == 2;
}

} // namespace

void run_forwards(
    const Graph& graph,
    const std::vector<at::Tensor>& parameters,
    Place place,
    bool checkpoints,
    Forwards& forwards) {
  const auto& pass = graph.steps[place.step].passes[place.pass];
  forwards.losses.resize(pass.together ? 1 : pass.forwards);
  if (pass.left_out == place.rank) {
    return;
  }
  for (int i = 0; i < pass.forwards; ++i) {
    place.forward = i;
    const auto& interpreter = forwards.interpreters.emplace_back(
        graph, parameters, place, checkpoints);
    const auto loss = interpreter.loss();
    auto& total = forwards.losses[pass.together ? 0 : i];
    if (loss.requires_grad()) {
      total = total.defined() ? total + loss : loss;
    }
  }
}

void handle(at::Tensor& gradient, Handling handling) {
  if (!gradient.defined()) {
    return;
  }
  if (handling == Handling::kNone) {
    gradient.reset();
  } else if (handling == Handling::kZero) {
    gradient.zero_();
  } else if (handling == Handling::kHalve) {
    gradient.mul_(0.5);
  } else if (handling == Handling::kReplace) {
    gradient = gradient.clone();
  }
}

Reference::Reference(const Graph& graph, int64_t size)
    : graph_(graph), size_(size) {
  parameters_ = make_parameters(graph);
  const bool wide =
      std::none_of(parameters_.begin(), parameters_.end(), is_narrow);
  for (auto& parameter : parameters_) {
    parameter = parameter.detach();
    parameter = wide ? parameter.to(at::kDouble) : parameter.clone();
  }
  const auto count = parameters_.size();
  magnitudes_.resize(count, 1e-2);
  gradients_.resize(size, std::vector<at::Tensor>(count));
  used_.resize(size, std::vector<bool>(count));
}

void Reference::begin(const Step& step) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].set_requires_grad(!step.frozen[i]);
    for (int64_t rank = 0; rank < size_; ++rank) {
      handle(gradients_[rank][i], step.handling[i]);
      used_[rank][i] = used_[rank][i] && gradients_[rank][i].defined();
    }
  }
}

void Reference::prepare(size_t step, size_t pass) {
  contributions_.assign(size_, {});
  for (int64_t rank = 0; rank < size_; ++rank) {
    Forwards forwards;
    run_forwards(graph_, parameters_, {step, pass, 0, rank}, false, forwards);
    for (const auto& loss : forwards.losses) {
      contributions_[rank].push_back(derive(loss));
    }
  }
}

void Reference::accumulate(size_t loss) {
  for (int64_t rank = 0; rank < size_; ++rank) {
    const auto& contribution = contributions_[rank][loss];
    for (size_t i = 0; i < contribution.size(); ++i) {
      if (contribution[i].defined()) {
        add(rank, i, contribution[i]);
      }
    }
  }
}

bool Reference::used(size_t parameter) const {
  return std::any_of(used_.begin(), used_.end(), [&](const auto& used) {
    return used[parameter];
  });
}

void Reference::reduce() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!used(i)) {
      continue;
    }
    auto mean = at::zeros(parameters_[i].sizes(), at::kDouble);
    for (const auto& gradients : gradients_) {
      if (gradients[i].defined()) {
        mean += gradients[i] / size_;
      }
    }
    for (int64_t rank = 0; rank < size_; ++rank) {
      gradients_[rank][i] = mean.clone();
      used_[rank][i] = false;
    }
  }
}

const at::Tensor& Reference::gradient(int64_t rank, size_t parameter) const {
  return gradients_[rank][parameter];
}

double Reference::magnitude(size_t parameter) const {
  return magnitudes_[parameter];
}

std::vector<at::Tensor> Reference::derive(const at::Tensor& loss) const {
  std::vector<at::Tensor> result(parameters_.size());
  std::vector<at::Tensor> inputs;
  for (const auto& parameter : parameters_) {
    if (parameter.requires_grad()) {
      inputs.push_back(parameter);
    }
  }
  if (!loss.defined()) {
    return result;
  }
  const auto found = torch::autograd::grad(
      {loss}, inputs, {}, false, false, /*allow_unused=*/true);
  for (size_t i = 0, k = 0; i < result.size(); ++i) {
    if (parameters_[i].requires_grad()) {
      const auto& gradient = found[k++];
      result[i] = gradient.defined() ? gradient.to(at::kDouble) : gradient;
    }
  }
  return result;
}

void Reference::add(
    int64_t rank,
    size_t parameter,
    const at::Tensor& contribution) {
  auto& gradient = gradients_[rank][parameter];
  gradient =
      gradient.defined() ? gradient + contribution : contribution.clone();
  used_[rank][parameter] = true;
  if (gradient.numel() > 0) {
    magnitudes_[parameter] =
        std::max(magnitudes_[parameter], gradient.abs().max().item<double>());
  }
}

} // namespace ddp::test
