// The C++ side of training runs that switch between C++ and Python.
// Run: ddprun --nproc-per-node 3 language_trainer FOLDER PHASE
// tests/parity/language_trainer.py is the other side and defines the phases.

#include <ddp/ddp.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <functional>
#include <memory>
#include <string>

namespace {

constexpr int64_t kHalf = 5;
constexpr int64_t kSteps = 10;
// The run whose learning rate changes where the other language resumes it.
constexpr const char* kStepLR = "step-lr";

struct Net : torch::nn::Module {
  Net() {
    const auto linear = [](int64_t in, int64_t out) {
      return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false));
    };
    a = register_module("a", linear(7, 33));
    b = register_module("b", linear(33, 19));
    c = register_module("c", linear(19, 3));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return c->forward(b->forward(a->forward(x).tanh()).tanh());
  }
  torch::nn::Linear a{nullptr}, b{nullptr}, c{nullptr};
};

using Parameters = std::vector<torch::Tensor>;
using NewOptimizer =
    std::function<std::unique_ptr<torch::optim::Optimizer>(Parameters)>;

template <typename Optimizer, typename Options>
NewOptimizer make(const Options& options) {
  return [options](Parameters parameters) {
    return std::make_unique<Optimizer>(std::move(parameters), options);
  };
}

std::vector<std::pair<std::string, NewOptimizer>> optimizers() {
  using namespace torch::optim;
  return {
      {"sgd",
       make<SGD>(
           SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(1e-3))},
      {kStepLR, make<SGD>(SGDOptions(0.1))},
      {"adam", make<ddp::Adam>(AdamOptions(0.01).amsgrad(true))},
      {"adamw", make<ddp::AdamW>(AdamWOptions(0.01).weight_decay(0.1))},
      {"libtorch-adam", make<Adam>(AdamOptions(0.01).weight_decay(1e-3))},
      {"rmsprop", make<RMSprop>(RMSpropOptions(0.01).momentum(0.5))},
      {"adagrad", make<Adagrad>(AdagradOptions(0.05).lr_decay(0.1))}};
}

/// Resumes from the file `from`, trains to `last_step` and writes `to`.
void train(
    const ddp::ProcessGroup& group,
    const NewOptimizer& new_optimizer,
    unsigned lr_steps,
    const std::string& from,
    const std::string& to,
    int64_t last_step) {
  auto net = std::make_shared<Net>();
  // As on the Python side, where this option prevents a rebuild of the buckets.
  ddp::Reducer reducer(
      net, group, ddp::ReducerOptions().find_unused_parameters(true));
  const auto optimizer = new_optimizer(net->parameters());
  torch::optim::StepLR scheduler(*optimizer, lr_steps, 0.1);
  int64_t step = 0;
  ddp::TrainingState state;
  state.add("model", net).add("optimizer", *optimizer).add("step", step);
  state.add("scheduler", scheduler);
  if (from.find("initial") == std::string::npos) {
    TORCH_CHECK(state.load(from, group), from, " is missing");
  } else {
    ddp::load_checkpoint(from, *net, group);
  }
  for (; step < last_step; ++step) {
    torch::manual_seed(1000 * step + group.rank());
    const auto input = torch::randn({4, 7});
    optimizer->zero_grad();
    net->forward(input).square().mean().backward();
    optimizer->step();
    scheduler.step();
  }
  state.save(to, group);
}

} // namespace

int main(int argc, char** argv) {
  TORCH_CHECK(argc == 3, "FOLDER PHASE");
  const std::string phase = argv[2];
  at::set_num_threads(1);
  const auto group = ddp::init_process_group();
  for (const auto& [name, new_optimizer] : optimizers()) {
    const unsigned lr_steps = name == kStepLR ? kHalf : kSteps + 1;
    const auto go_on =
        [&, optimizer = new_optimizer](
            const std::string& from, const std::string& to, int64_t last_step) {
          const auto path = [&](const std::string& file) {
            return std::string(argv[1]) + "/" + file + ".pt";
          };
          train(group, optimizer, lr_steps, path(from), path(to), last_step);
        };
    if (phase == "1") {
      go_on("initial", name + ".cpp-all", kSteps);
      go_on("initial", name + ".cpp-half", kHalf);
    } else {
      go_on(name + ".py-half", name + ".py-cpp", kSteps);
      go_on(name + ".py-half", name + ".py-half-cpp", kHalf);
      go_on(name + ".cpp-half-py", name + ".cpp-py-cpp", kSteps);
    }
  }
  return 0;
}
