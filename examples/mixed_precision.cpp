// Training in half precision: autocast, a scaled loss, clipped gradients, and
// batch-norm over the batches of all ranks. A loop in single precision lacks
// the lines with (+). Run: ddprun --nproc-per-node 2 mixed_precision

#include "report_errors.h"

#include <ddp/ddp.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>

#include <cmath>
#include <string>

struct Arguments {
  int64_t steps = 60;
  int64_t overflow_at = -1;
  std::string dtype;
};

/// Points, and the nearest of 8 directions for each.
torch::data::Example<> make_batch(const ddp::ProcessGroup& group) {
  static const auto directions = torch::randn({32, 8});
  const auto points = torch::randn({64, 32});
  return {
      points.to(group.device()),
      points.mm(directions).argmax(1).to(group.device())};
}

void train(const Arguments& arguments) {
  const auto group = ddp::init_process_group();
  const bool half = arguments.dtype.empty() ? group.device().is_cuda()
                                            : arguments.dtype == "float16";
  const auto dtype = half ? torch::kHalf : torch::kBFloat16;

  ddp::manual_seed(1, group);
  torch::nn::Sequential net(
      torch::nn::Linear(32, 64),
      torch::nn::BatchNorm1d(64),
      torch::nn::ReLU(),
      torch::nn::Linear(64, 8));
  net->to(group.device());
  ddp::convert_sync_batchnorm(net, group); // (+)
  torch::optim::SGD optimizer(net->parameters(), /*lr=*/0.5);
  ddp::Reducer reducer(net, group);
  ddp::GradScaler scaler(ddp::GradScalerOptions().enabled(half)); // (+)

  make_batch(group); // the same directions on all ranks
  ddp::seed_rank_streams(1, 0, group); // but different points
  double first = 0;
  double last = 0;
  int64_t skipped = 0;
  for (int64_t step = 0; step < arguments.steps; ++step) {
    const auto batch = make_batch(group);
    optimizer.zero_grad();
    torch::Tensor loss;
    {
      const ddp::AutocastGuard autocast(group.device().type(), dtype); // (+)
      loss = torch::nn::functional::cross_entropy(
          net->forward(batch.data), batch.target);
    }
    last = loss.item<double>();
    first = step == 0 ? last : first;
    if (step == arguments.overflow_at && group.rank() == 0) {
      loss = loss * INFINITY;
    }
    scaler.scale(loss).backward(); // (+) instead of loss.backward()
    scaler.unscale_(optimizer); // (+) before gradients are used
    reducer.clip_grad_norm(1.0);
    skipped += scaler.step(optimizer) ? 0 : 1; // (+) instead of its step()
    scaler.update(); // (+)
  }
  ddp::print(group, dtype, ": loss ", first, " at first, ", last, " at last");
  const auto share = c10::str(skipped, " of ", arguments.steps);
  ddp::print(group, share, " steps skipped, scale ", scaler.get_scale());
  ddp::verify_same_parameters(*net, group);
}

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Trains in half precision.");
  app.add_option("--steps", arguments.steps)->check(CLI::PositiveNumber);
  app.add_option(
         "--dtype",
         arguments.dtype,
         "default: float16 on a GPU, bfloat16 on the CPU")
      ->check(CLI::IsMember({"float16", "bfloat16"}));
  app.add_option(
      "--overflow-at",
      arguments.overflow_at,
      "the step in which rank 0's loss is made infinite");
  CLI11_PARSE(app, argc, argv);
  return report_errors([&] { train(arguments); });
}
