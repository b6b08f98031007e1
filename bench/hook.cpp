// What gradient hooks cost: a step of 200 small layers with a Reducer, one with
// c10d::Reducer of the same LibTorch, and one with neither, in turns.
// Run: ddp_bench_hook [steps]

#include <ddp/ddp.h>
#include <tests/support/c10d_reducer.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kLayers = 200;
constexpr int kWidth = 64;
constexpr int kBatch = 32;

torch::nn::Sequential make_net() {
  torch::nn::Sequential net;
  for (int i = 0; i < kLayers; ++i) {
    net->push_back(torch::nn::Linear(kWidth, kWidth));
    net->push_back(torch::nn::ReLU());
  }
  return net;
}

struct Case {
  const char* name;
  torch::nn::Sequential net;
  bool keep_gradients;
  std::unique_ptr<ddp::Reducer> reducer;
  std::unique_ptr<ddp::test::C10dReducer> c10d_reducer;
  std::vector<double> microseconds;
};

void clear_gradients(const Case& c, const std::vector<at::Tensor>& parameters) {
  for (auto& parameter : parameters) {
    auto& grad = parameter.mutable_grad();
    if (!c.keep_gradients) {
      grad.reset();
    } else if (grad.defined()) {
      grad.zero_();
    }
  }
}

/// Backward, and the clearing of gradients after it, where some free memory
/// that others free in backward.
double backward_microseconds(Case& c, const torch::Tensor& input) {
  const auto parameters = c.net->parameters();
  const auto forward = [&] { return c.net->forward(input); };
  const auto output =
      c.c10d_reducer ? c.c10d_reducer->forward(forward) : forward();
  const auto loss = output.pow(2).mean();
  const auto start = std::chrono::steady_clock::now();
  loss.backward();
  clear_gradients(c, parameters);
  const std::chrono::duration<double, std::micro> took =
      std::chrono::steady_clock::now() - start;
  return took.count();
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(
      q * static_cast<double>(values.size() - 1))];
}

} // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 100;
  at::set_num_threads(1);
  // A real communicator with one rank: the hooks work, the network does not.
  const auto group = ddp::init_process_group(
      ddp::ProcessGroupOptions().backend("gloo").rank(0).world_size(1));
  const auto input = torch::randn({kBatch, kWidth});

  std::vector<Case> cases;
  for (const bool keep : {false, true}) {
    const char* names[2][3] = {
        {"plain", "c10d::Reducer", "ddp::Reducer"},
        {"plain, kept", "c10d::Reducer, kept", "ddp::Reducer, kept"}};
    for (const char* name : names[keep]) {
      cases.push_back({name, make_net(), keep, nullptr, nullptr, {}});
    }
    auto& c10d_case = cases[cases.size() - 2];
    c10d_case.c10d_reducer = std::make_unique<ddp::test::C10dReducer>(
        *c10d_case.net,
        group,
        ddp::ReducerOptions().gradient_as_bucket_view(true));
    auto& own_case = cases.back();
    own_case.reducer = std::make_unique<ddp::Reducer>(own_case.net, group);
  }
  for (int step = -5; step < steps; ++step) {
    for (auto& c : cases) {
      const double time = backward_microseconds(c, input);
      if (step >= 0) {
        c.microseconds.push_back(time);
      }
    }
  }

  const int parameters = 2 * kLayers;
  std::printf(
      "%d parameters, %d steps; backward with gradients set to none, and with "
      "gradients kept and zeroed\n",
      parameters,
      steps);
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& base = cases[i - i % 3].microseconds;
    std::vector<double> extra(base.size());
    for (size_t s = 0; s < extra.size(); ++s) {
      extra[s] = (cases[i].microseconds[s] - base[s]) / parameters;
    }
    std::printf(
        "%-20s backward %8.0f us   over plain %6.2f us per parameter "
        "[%.2f, %.2f]\n",
        cases[i].name,
        quantile(cases[i].microseconds, 0.5),
        quantile(extra, 0.5),
        quantile(extra, 0.25),
        quantile(extra, 0.75));
  }
  return 0;
}
