// A step on a GPU without communication, with c10d::Reducer of the same
// LibTorch, and with a Reducer, in turns, over NCCL. Alone it has one rank; for
// more: ddprun --nproc-per-node gpu ddp_bench_gpu
// Run: ddp_bench_gpu [rounds]

#include <bench/c10d_reducer.h>
#include <bench/paired.h>
#include <ddp/ddp.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kStepsPerRound = 10;
constexpr int kWarmUpRounds = 2;
constexpr int kBatch = 32;

torch::nn::Sequential stack(int layers, int width, c10::Device device) {
  torch::nn::Sequential net;
  for (int i = 0; i < layers; ++i) {
    net->push_back(torch::nn::Linear(width, width));
    net->push_back(torch::nn::ReLU());
  }
  net->to(device);
  return net;
}

/// Some steps, each with the forward that `around` makes of the net's.
template <typename Around>
bench::Way way(
    const char* name,
    torch::nn::Sequential net,
    const torch::Tensor& input,
    Around around) {
  const auto run = [net, input, around]() mutable {
    torch::cuda::synchronize();
    return bench::seconds_of([&] {
      for (int i = 0; i < kStepsPerRound; ++i) {
        net->zero_grad();
        around([&] { return net->forward(input); }).pow(2).mean().backward();
      }
      torch::cuda::synchronize();
    });
  };
  return {name, run, {}};
}

void measure(
    const char* title,
    int layers,
    int width,
    int rounds,
    const ddp::ProcessGroup& group) {
  const auto device = group.device();
  const auto input = torch::randn({kBatch, width}, device);
  const auto plain = [](const auto& forward) { return forward(); };
  const auto theirs = stack(layers, width, device);
  const auto ours = stack(layers, width, device);
  const auto options = ddp::ReducerOptions().gradient_as_bucket_view(true);
  bench::C10dReducer c10d(*theirs, group, options);
  const ddp::Reducer reducer(ours, group);
  std::vector<bench::Way> ways{
      way("plain", stack(layers, width, device), input, plain),
      way("c10d::Reducer",
          theirs,
          input,
          [&](const auto& forward) { return c10d.forward(forward); }),
      way("ddp::Reducer", ours, input, plain)};
  bench::run_in_turns(ways, kWarmUpRounds);
  for (auto& one : ways) {
    one.seconds.clear();
  }
  bench::run_in_turns(ways, rounds);
  for (const auto& one : ways) {
    if (group.rank() == 0) {
      const auto result = bench::result_of(title, one, ways);
      std::printf(
          "%-10s  %-13s  %8.3f ms a step, over plain %5.3f %s\n",
          title,
          one.name.c_str(),
          1e3 * result["seconds"].get<double>() / kStepsPerRound,
          result.value("ratio_plain", 1.0),
          result.value("ratio_plain_quartiles", nlohmann::json())
              .dump()
              .c_str());
    }
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
  measure("many small", 200, 64, rounds, group);
  measure("few large", 4, 4096, rounds, group);
  return 0;
}
