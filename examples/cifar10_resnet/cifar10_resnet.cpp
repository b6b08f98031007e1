// Trains a ResNet on CIFAR-10 (in data/cifar-10-batches-bin), data-parallel.
// Run: ddprun --nproc-per-node 4 cifar10_resnet --lr=0.001 --batch_size=32

#include "cifar10.h"
#include "cifar10_arguments.h"
#include "image_sums.h"
#include "progress.h"
#include "report_errors.h"
#include "resnet.h"
#include "resnet_weights.h"
#include "training_log.h"

#include <ddp/ddp.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

namespace fs = std::filesystem;

using Clock = std::chrono::steady_clock;

constexpr int64_t kShowEvery = 10; // steps

/// Runs `work` on every rank; what it throws on one, all throw.
template <typename Work>
void on_all_ranks(const ddp::ProcessGroup& group, const Work& work) {
  std::string problem;
  try {
    work();
  } catch (const c10::Error& error) {
    problem = error.what_without_backtrace();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  const auto problems = group.all_gather(problem);
  for (size_t rank = 0; rank < problems.size(); ++rank) {
    TORCH_CHECK(problems[rank].empty(), "rank ", rank, ": ", problems[rank]);
  }
}

/// The images of both parts, and the loaders of this rank's share.
struct Data {
  using Batches = torch::data::datasets::
      MapDataset<Cifar10, torch::data::transforms::Stack<>>;

  Data(const Arguments& arguments, const ddp::ProcessGroup& group);

  /// Images that are trained with in an epoch, over all ranks.
  int64_t epoch_size;
  Cifar10 train_set;
  Cifar10 test_set;
  std::unique_ptr<ddp::DataLoader<Batches, ddp::DistributedSampler>> train;
  std::unique_ptr<ddp::DataLoader<Batches, ddp::EvaluationSampler>> test;
};

Data::Data(const Arguments& arguments, const ddp::ProcessGroup& group)
    : train_set(arguments.data, Cifar10::Part::kTrain),
      test_set(arguments.data, Cifar10::Part::kTest) {
  const auto images = *train_set.size();
  const auto options = ddp::DataLoaderOptions(arguments.batch_size)
                           .workers(arguments.workers)
                           .device(group.device()); // by way of pinned memory
  train_set.augment(arguments.seed);
  const ddp::DistributedSampler sampler(
      images, group, ddp::SamplerOptions().seed(arguments.seed));
  auto share = static_cast<int64_t>(sampler.size());
  if (arguments.max_steps > 0) {
    share = std::min(share, arguments.max_steps * arguments.batch_size);
  }
  epoch_size = share * group.size();
  const torch::data::transforms::Stack<> stack;
  train = ddp::make_data_loader(train_set.map(stack), sampler, options);
  test = ddp::make_data_loader(
      test_set.map(stack),
      ddp::EvaluationSampler(*test_set.size(), group),
      options);
}

class Training {
 public:
  explicit Training(const Arguments& arguments);

  void run();

 private:
  void load_initial_weights();
  void set_optimizer_options();
  void open_checkpoints();
  void open_log();
  bool train_epoch(int64_t epoch);
  bool has_steps_left() const;
  torch::Tensor step(const torch::data::Example<>& batch);
  ImageSums evaluate();
  void finish_epoch(int64_t epoch, double seconds);
  void save_and_stop();

  /// Prints on rank 0 alone.
  template <typename... Values>
  void say(const char* format, const Values&... values) const {
    if (group_.rank() == 0) {
      std::printf(format, values...);
      std::fflush(stdout);
    }
  }

  Arguments arguments_;
  ddp::ProcessGroup group_;
  std::unique_ptr<Data> data_;
  std::shared_ptr<ResNet> net_;
  std::unique_ptr<ddp::Reducer> reducer_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
  int64_t step_ = 0; // of all epochs
  int64_t epoch_step_ = 0;
  int64_t epoch_images_ = 0; // over all ranks
  ImageSums sums_; // of this epoch so far
  std::unique_ptr<ddp::CheckpointManager> checkpoints_;
  std::unique_ptr<TrainingLog> log_; // on rank 0
  ddp::StopSignal stop_;
};

Training::Training(const Arguments& arguments)
    : arguments_(arguments),
      group_(ddp::init_process_group()),
      sums_(group_.device()),
      stop_(group_) {
  ddp::manual_seed(arguments.seed, group_);
  on_all_ranks(
      group_, [&] { data_ = std::make_unique<Data>(arguments_, group_); });
  net_ = std::make_shared<ResNet>(
      ResNetOptions{arguments.depth, 10, arguments.stem});
  load_initial_weights();
  net_->to(group_.device());
  reducer_ = std::make_unique<ddp::Reducer>(net_, group_);
  optimizer_ = std::make_unique<torch::optim::SGD>(
      net_->parameters(), torch::optim::SGDOptions(arguments.learning_rate));
  set_optimizer_options();
  open_checkpoints();
  open_log();
}

/// On rank 0, from which the Reducer gives them to the others.
void Training::load_initial_weights() {
  if (arguments_.weights.empty()) {
    return;
  }
  on_all_ranks(group_, [&] {
    if (group_.rank() == 0) {
      for (const auto& name : load_weights(arguments_.weights, *net_)) {
        say("%s is for other classes in '%s' and left out\n",
            name.c_str(),
            arguments_.weights.c_str());
      }
    }
  });
}

void Training::set_optimizer_options() {
  for (auto& group : optimizer_->param_groups()) {
    static_cast<torch::optim::SGDOptions&>(group.options())
        .momentum(arguments_.momentum)
        .weight_decay(arguments_.weight_decay);
  }
}

/// Goes on from the newest, if there is one.
void Training::open_checkpoints() {
  const auto folder = fs::path(arguments_.folder) / "checkpoints";
  on_all_ranks(group_, [&] {
    TORCH_CHECK(
        group_.rank() > 0 || arguments_.resume || !fs::exists(folder) ||
            fs::is_empty(folder),
        "'",
        arguments_.folder,
        "' has the checkpoints of an earlier run: --resume goes on with it, "
        "--folder chooses another place");
  });
  ddp::TrainingState state;
  state.add("net", net_).add("optimizer", *optimizer_);
  state.add("reducer", *reducer_).add("loader", *data_->train);
  state.add("step", step_).add("epoch_step", epoch_step_);
  state.add("epoch_images", epoch_images_).add("sums", sums_.values());
  checkpoints_ = std::make_unique<ddp::CheckpointManager>(
      folder.string(),
      std::move(state),
      group_,
      ddp::CheckpointManagerOptions().keep_best(1).asynchronous(true));
  if (checkpoints_->load()) {
    say("goes on from step %" PRId64 "\n", step_);
    set_optimizer_options(); // the command line's, not the checkpoint's
    if (group_.rank() > 0) {
      sums_.values().zero_(); // those of all ranks, which rank 0 has now
    }
  }
}

void Training::open_log() {
  on_all_ranks(group_, [&] {
    if (group_.rank() == 0) {
      log_ = std::make_unique<TrainingLog>(
          arguments_.folder, data_->train->epoch());
    }
  });
}

void Training::run() {
  say("%" PRId64 " ranks, backend %s, device %s, ResNet-%" PRId64 ", %" PRId64
      " images to train with, %" PRId64 " to test with\n",
      group_.size(),
      group_.backend().c_str(),
      group_.device().str().c_str(),
      arguments_.depth,
      data_->train_set.images().size(0),
      data_->test_set.images().size(0));
  if (data_->train->epoch() >= arguments_.epochs) {
    say("this run is beyond %" PRId64 " epochs: nothing is left to train\n",
        arguments_.epochs);
  }
  for (auto epoch = data_->train->epoch(); epoch < arguments_.epochs; ++epoch) {
    const auto start = Clock::now();
    if (!train_epoch(epoch)) {
      save_and_stop();
      return;
    }
    const std::chrono::duration<double> elapsed = Clock::now() - start;
    finish_epoch(epoch, elapsed.count());
  }
  checkpoints_->wait();
  ddp::verify_same_parameters(
      *net_, group_, ddp::VerificationOptions().buffers(true));
  const auto weights = arguments_.folder + "/weights.pth";
  ddp::save_checkpoint(weights, *net_, group_);
  say("weights: %s\nparameters: hash %016" PRIx64 ", equal on all ranks\n",
      weights.c_str(),
      ddp::parameter_hash(*net_));
}

/// Returns false where a signal says to stop.
bool Training::train_epoch(int64_t epoch) {
  const auto rate = learning_rate(arguments_, epoch);
  for (auto& parameters : optimizer_->param_groups()) {
    parameters.options().set_lr(rate);
  }
  net_->train();
  data_->train->set_epoch(epoch);
  data_->train_set.set_epoch(epoch); // of its copies in the loader, too
  if (!has_steps_left()) { // it was stopped at the end of the epoch
    return true;
  }
  const auto before = epoch_images_;
  const auto left = data_->epoch_size - before;
  Progress progress(
      "epoch " + std::to_string(epoch + 1), left, group_.rank() != 0);
  for (const auto& batch : *data_->train) {
    const auto loss = step(batch);
    const auto done = std::min(epoch_images_ - before, left);
    if (epoch_step_ % kShowEvery == 0 || done == left) {
      progress.update(done, loss.item<double>()); // waits for the GPU
    }
    if (stop_.requested()) {
      return false;
    }
    if (!has_steps_left()) {
      break;
    }
  }
  return true;
}

bool Training::has_steps_left() const {
  return arguments_.max_steps == 0 || epoch_step_ < arguments_.max_steps;
}

/// Returns the loss.
torch::Tensor Training::step(const torch::data::Example<>& batch) {
  optimizer_->zero_grad();
  const auto guess = net_->forward(batch.data);
  const auto loss = torch::nn::functional::cross_entropy(guess, batch.target);
  loss.backward(); // averages the gradients over ranks
  optimizer_->step();
  sums_.add(loss, guess, batch.target);
  ++step_;
  ++epoch_step_;
  epoch_images_ += batch.target.size(0) * group_.size();
  return loss.detach();
}

/// Each test image is seen by one rank; the sums are those of all.
ImageSums Training::evaluate() {
  const torch::NoGradGuard no_grad;
  net_->eval();
  ImageSums sums(group_.device());
  for (const auto& batch : *data_->test) {
    const auto guess = net_->forward(batch.data);
    const auto loss = torch::nn::functional::cross_entropy(guess, batch.target);
    sums.add(loss, guess, batch.target);
  }
  sums.reduce(group_); // ranks may have different numbers of batches
  return sums;
}

void Training::finish_epoch(int64_t epoch, double seconds) {
  sums_.reduce(group_);
  const auto test = evaluate();
  say("epoch %" PRId64
      ": train loss %.4f, accuracy %.2f %%; test loss %.4f, "
      "accuracy %.2f %% (%" PRId64 " of %" PRId64 ")\n",
      epoch + 1,
      sums_.loss(),
      100 * sums_.accuracy(),
      test.loss(),
      100 * test.accuracy(),
      test.correct(),
      test.count());
  if (log_) {
    log_->add(
        {epoch + 1,
         step_,
         learning_rate(arguments_, epoch),
         sums_.loss(),
         sums_.accuracy(),
         test.loss(),
         test.accuracy(),
         seconds});
  }
  epoch_step_ = 0;
  epoch_images_ = 0;
  sums_.values().zero_();
  data_->train->set_epoch(epoch + 1); // what a checkpoint goes on with
  checkpoints_->save(step_, test.accuracy());
}

/// Amid an epoch.
void Training::save_and_stop() {
  sums_.reduce(group_);
  checkpoints_->save(step_);
  checkpoints_->wait();
  say("stopped at step %" PRId64 "; --resume goes on from there\n", step_);
}

void train(const Arguments& arguments) {
  Training(arguments).run();
}

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Trains a ResNet on CIFAR-10, data-parallel.");
  add_options(app, arguments);
  CLI11_PARSE(app, argc, argv);
  return report_errors([&] {
    if (arguments.world_size == 0) {
      train(arguments); // as the rank that a launcher made it, or alone
    } else {
      ddp::spawn(argc, argv, arguments.world_size, [&] { train(arguments); });
    }
  });
}
