// Two nets with a Reducer and an optimizer each, trained against each other,
// and one checkpoint with all. Run: ddprun --nproc-per-node 3 gan runs/gan

#include "report_errors.h"

#include <ddp/ddp.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>

#include <string>

struct Arguments {
  std::string folder;
  int64_t steps = 2000;
  int64_t batch_size = 48; // samples per step, over all ranks
  int64_t save_every = 100;
};

constexpr int64_t kNoise = 8;

torch::nn::Sequential make_net(int64_t inputs, int64_t outputs) {
  return torch::nn::Sequential(
      torch::nn::Linear(inputs, 64),
      torch::nn::LeakyReLU(),
      torch::nn::Linear(64, 64),
      torch::nn::LeakyReLU(),
      torch::nn::Linear(64, outputs));
}

/// Points around eight places on a circle.
torch::Tensor draw_points(int64_t count) {
  const auto angle = torch::randint(8, {count}) * (M_PI / 4);
  return torch::stack({angle.cos(), angle.sin()}, 1) +
      torch::randn({count, 2}) * 0.05;
}

/// This rank's share of a batch that is the same on all ranks.
torch::Tensor share_of(const torch::Tensor& batch, ddp::ProcessGroup& group) {
  return batch.tensor_split(group.size())[group.rank()].to(group.device());
}

torch::Tensor loss_of(const torch::Tensor& guess, double truth) {
  return torch::binary_cross_entropy_with_logits(
      guess, torch::full_like(guess, truth));
}

void set_trainable(torch::nn::Sequential& net, bool trainable) {
  for (auto& parameter : net->parameters()) {
    parameter.set_requires_grad(trainable);
  }
}

void train(const Arguments& arguments) {
  auto group = ddp::init_process_group();
  TORCH_CHECK_VALUE(
      arguments.batch_size % group.size() == 0,
      "a batch of ",
      arguments.batch_size,
      " points cannot be divided evenly by ",
      group.size(),
      " ranks: choose another --batch-size");
  ddp::manual_seed(5, group);
  auto generator = make_net(kNoise, 2);
  auto discriminator = make_net(2, 1);
  generator->to(group.device());
  discriminator->to(group.device());
  ddp::Reducer generator_reducer(generator, group);
  ddp::Reducer discriminator_reducer(discriminator, group);
  const auto adam = torch::optim::AdamOptions(1e-3).betas({0.5, 0.99});
  ddp::Adam generator_optimizer(generator->parameters(), adam);
  ddp::Adam discriminator_optimizer(discriminator->parameters(), adam);

  int64_t step = 0;
  ddp::TrainingState run;
  run.add("generator", generator).add("discriminator", discriminator);
  run.add("generator_optimizer", generator_optimizer);
  run.add("discriminator_optimizer", discriminator_optimizer);
  run.add("generator_reducer", generator_reducer);
  run.add("discriminator_reducer", discriminator_reducer);
  run.add("step", step).add_random_state();
  ddp::CheckpointManager checkpoints(arguments.folder, run, group);
  if (checkpoints.load()) {
    ddp::print(group, "resumes from step ", step);
  }

  if (step >= arguments.steps) {
    ddp::print(group, "nothing left to do: --steps is ", arguments.steps);
    return;
  }
  torch::Tensor discriminator_loss;
  torch::Tensor generator_loss;
  while (step < arguments.steps) {
    const auto real = share_of(draw_points(arguments.batch_size), group);
    const auto noise =
        share_of(torch::randn({arguments.batch_size, kNoise}), group);
    const auto fake = generator->forward(noise);

    discriminator_optimizer.zero_grad();
    discriminator_loss = loss_of(discriminator->forward(real), 1) +
        loss_of(discriminator->forward(fake.detach()), 0);
    discriminator_loss.backward();
    discriminator_optimizer.step();

    // The generator learns through the discriminator, whose gradients are not
    // needed here: frozen, it has none, and none are sent.
    set_trainable(discriminator, false);
    generator_optimizer.zero_grad();
    generator_loss = loss_of(discriminator->forward(fake), 1);
    generator_loss.backward();
    generator_optimizer.step();
    set_trainable(discriminator, true);

    if (++step % arguments.save_every == 0 || step == arguments.steps) {
      checkpoints.save(step);
    }
  }

  const torch::nn::ModuleList both(generator, discriminator);
  group.all_reduce(
      discriminator_loss = discriminator_loss.detach(), ddp::ReduceOp::kMean);
  group.all_reduce(
      generator_loss = generator_loss.detach(), ddp::ReduceOp::kMean);
  ddp::print(
      group,
      "step ",
      step,
      ": loss of discriminator ",
      discriminator_loss.item<double>(),
      ", of generator ",
      generator_loss.item<double>(),
      ", parameters ",
      ddp::parameter_hash(*both));
}

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Trains a generator and a discriminator against each other.");
  app.add_option("folder", arguments.folder, "folder of the checkpoints")
      ->required();
  app.add_option("--steps", arguments.steps)->check(CLI::PositiveNumber);
  app.add_option(
         "--batch-size",
         arguments.batch_size,
         "samples per step, over all ranks")
      ->check(CLI::PositiveNumber);
  app.add_option("--save-every", arguments.save_every, "steps")
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  return report_errors([&] { train(arguments); });
}
