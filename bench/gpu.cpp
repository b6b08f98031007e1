// A step on a GPU without communication, with c10d::Reducer of the same
// LibTorch, and with a Reducer, in turns, over NCCL. Alone it has one rank; for
// more: ddprun --nproc-per-node gpu ddp_bench_gpu
// Run: ddp_bench_gpu [rounds]

#include <bench/c10d_reducer.h>
#include <bench/quartiles.h>
#include <ddp/ddp.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

constexpr int kStepsPerRound = 10;
constexpr int kBatch = 32;

using Net = torch::nn::Sequential;

Net stack(int layers, int width, const c10::Device& device) {
  Net net;
  for (int i = 0; i < layers; ++i) {
    net->push_back(torch::nn::Linear(width, width));
    net->push_back(torch::nn::ReLU());
  }
  net->to(device);
  return net;
}

Net many_small(const c10::Device& device) {
  return stack(200, 64, device);
}

Net few_large(const c10::Device& device) {
  return stack(4, 4096, device);
}

struct Case {
  const char* name;
  Net net;
  std::unique_ptr<ddp::Reducer> reducer;
  std::unique_ptr<bench::C10dReducer> c10d_reducer;
  std::vector<double> milliseconds;
};

void step(Case& c, const torch::Tensor& input) {
  c.net->zero_grad();
  const auto forward = [&] { return c.net->forward(input); };
  const auto output =
      c.c10d_reducer ? c.c10d_reducer->forward(forward) : forward();
  output.pow(2).mean().backward();
}

double milliseconds_per_step(Case& c, const torch::Tensor& input) {
  torch::cuda::synchronize();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kStepsPerRound; ++i) {
    step(c, input);
  }
  torch::cuda::synchronize();
  const std::chrono::duration<double, std::milli> took =
      std::chrono::steady_clock::now() - start;
  return took.count() / kStepsPerRound;
}

std::vector<Case> cases_of(
    const std::function<Net(const c10::Device&)>& make_net,
    const ddp::ProcessGroup& group) {
  std::vector<Case> cases;
  for (const char* name : {"plain", "c10d::Reducer", "ddp::Reducer"}) {
    cases.push_back({name, make_net(group.device()), nullptr, nullptr, {}});
  }
  cases[1].c10d_reducer = std::make_unique<bench::C10dReducer>(
      *cases[1].net,
      group,
      ddp::ReducerOptions().gradient_as_bucket_view(true));
  cases[2].reducer = std::make_unique<ddp::Reducer>(cases[2].net, group);
  return cases;
}

void print(const char* title, const std::vector<Case>& cases) {
  for (const auto& c : cases) {
    std::vector<double> ratios(c.milliseconds.size());
    for (size_t i = 0; i < ratios.size(); ++i) {
      ratios[i] = c.milliseconds[i] / cases.front().milliseconds[i];
    }
    const auto [low, median, high] = bench::quartiles(ratios);
    std::printf(
        "%-12s %-14s %4zu parameters  %8.3f ms   over plain %5.3f "
        "[%.3f, %.3f]\n",
        title,
        c.name,
        c.net->parameters().size(),
        bench::quartiles(c.milliseconds).median,
        median,
        low,
        high);
  }
}

void measure(
    const char* title,
    const std::function<Net(const c10::Device&)>& make_net,
    int64_t width,
    int rounds,
    const ddp::ProcessGroup& group) {
  auto cases = cases_of(make_net, group);
  const auto input = torch::randn({kBatch, width}, group.device());
  for (int round = -2; round < rounds; ++round) {
    for (auto& c : cases) {
      const double time = milliseconds_per_step(c, input);
      if (round >= 0) {
        c.milliseconds.push_back(time);
      }
    }
  }
  if (group.rank() == 0) {
    print(title, cases);
  }
}

} // namespace

int main(int argc, char** argv) {
  if (!torch::cuda::is_available()) {
    std::printf("skipped: no usable GPU\n");
    return 0;
  }
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  const auto group =
      ddp::init_process_group(ddp::ProcessGroupOptions().backend("nccl"));
  if (group.rank() == 0) {
    std::printf("%d ranks over NCCL\n", static_cast<int>(group.size()));
  }
  measure("many small", many_small, 64, rounds, group);
  measure("few large", few_large, 4096, rounds, group);
  return 0;
}
