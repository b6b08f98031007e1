// Trains on numbered samples and counts how often each one was seen in each
// epoch, even if ranks are lost meanwhile: in checkpoints in a folder or, if
// FOLDER is "-", in processes that outlive changes of nodes. If the variable
// STOP_SIGNAL is set, also SIGTERM makes it save and exit with 3, as SIGUSR1
// does. Run: elastic_trainer FOLDER EPOCHS SAMPLES PAUSE_MS

#include <ddp/ddp.h>
#include <torch/torch.h>

#include <unistd.h>

#include <chrono>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

namespace {

constexpr int64_t kSaveEvery = 5;
constexpr int kStopped = 3; // not 0: the training is to be started again

struct Arguments {
  std::string folder;
  int64_t epochs = 1;
  int64_t samples = 1;
  int64_t pause_ms = 0;
};

void pause(int64_t milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// The same on all ranks. A rank's last batch may have one sample, of which
// BatchNorm needs several values for each channel.
torch::nn::Sequential make_net(const ddp::ProcessGroup& group) {
  ddp::manual_seed(7, group);
  return torch::nn::Sequential(
      torch::nn::Linear(1, 32),
      torch::nn::Unflatten(torch::nn::UnflattenOptions(1, {8, 4})),
      torch::nn::BatchNorm1d(8),
      torch::nn::ReLU(),
      ddp::SyncBatchNorm1d(torch::nn::BatchNormOptions(8), group),
      torch::nn::Flatten(),
      torch::nn::Linear(32, 1));
}

auto make_loader(int64_t samples, const ddp::ProcessGroup& group) {
  return ddp::make_data_loader(
      torch::data::datasets::TensorDataset(
          torch::arange(samples, torch::kFloat).unsqueeze(1))
          .map(torch::data::transforms::Stack<torch::data::TensorExample>()),
      ddp::DistributedSampler(samples, group),
      ddp::DataLoaderOptions(4));
}

struct Training {
  Training(ddp::ProcessGroup ranks, const Arguments& given)
      : arguments(given), group(std::move(ranks)) {
    state.add("net", net).add("optimizer", optimizer).add("loader", *loader);
    state.add("scheduler", scheduler).add("reducer", reducer);
    state.add("step", step).add("seen", seen);
  }

  /// Calls `after_step` with the number of times that this rank saw each sample
  /// in the step, until it returns false.
  template <typename AfterStep>
  void run(AfterStep after_step) {
    for (int64_t epoch = loader->epoch(); epoch < arguments.epochs; ++epoch) {
      loader->set_epoch(epoch);
      for (auto& batch : *loader) {
        optimizer.zero_grad();
        (net->forward(batch.data / arguments.samples) - 1)
            .square()
            .mean()
            .backward();
        optimizer.step();
        scheduler.step();
        auto own = torch::zeros_like(seen);
        own[epoch].index_add_(
            0,
            batch.data.flatten().to(torch::kLong),
            torch::ones({batch.data.numel()}, torch::kLong));
        ++step;
        if (!after_step(own)) {
          return;
        }
      }
    }
  }

  /// Adds the ranks' counts since the last call.
  void count_seen(torch::Tensor& fresh) {
    group.all_reduce(fresh);
    seen.add_(fresh);
    fresh.zero_();
  }

  size_t hash_of_weights() const {
    auto all = net->parameters();
    const auto statistics = net->buffers();
    all.insert(all.end(), statistics.begin(), statistics.end());
    std::string bytes;
    for (const auto& values : all) {
      bytes.append(
          static_cast<const char*>(values.data_ptr()), values.nbytes());
    }
    return std::hash<std::string>()(bytes);
  }

  void report() const {
    if (group.rank() == 0) {
      std::printf(
          "finished after %" PRId64 " steps: samples were seen %" PRId64
          " to %" PRId64 " times, %" PRId64 " more than once; weights %zx\n",
          step,
          seen.min().item<int64_t>(),
          seen.max().item<int64_t>(),
          seen.gt(1).sum().item<int64_t>(),
          hash_of_weights());
    }
  }

  const Arguments& arguments;
  ddp::ProcessGroup group;
  torch::nn::Sequential net = make_net(group);
  ddp::Reducer reducer{net, group};
  torch::optim::Adam optimizer{net->parameters(), 1e-3};
  torch::optim::StepLR scheduler{optimizer, 20, 0.9};
  decltype(make_loader(0, group)) loader =
      make_loader(arguments.samples, group);
  torch::Tensor seen =
      torch::zeros({arguments.epochs, arguments.samples}, torch::kLong);
  int64_t step = 0;
  ddp::TrainingState state;
};

// Saves without the lost ranks, as a program may that must keep its progress,
// once the file `sign` exists.
void save_alone(Training& training, const char* sign) {
  while (!std::ifstream(sign)) {
    pause(50);
  }
  try {
    ddp::CheckpointManager(training.arguments.folder, training.state)
        .save(1000000);
    std::printf("saved alone\n");
  } catch (const std::exception& error) {
    std::printf("cannot save alone: %s\n", error.what());
  }
}

// The exit code.
int train(const Arguments& arguments) {
  Training training(ddp::init_process_group(), arguments);
  const auto& group = training.group;
  ddp::CheckpointManager checkpoints(arguments.folder, training.state, group);
  checkpoints.load();
  ddp::print(
      group,
      "resumes from step ",
      training.step,
      " with ",
      group.size(),
      " ranks");
  ddp::StopSignal stop(
      group, {SIGUSR1, std::getenv("STOP_SIGNAL") ? SIGTERM : SIGUSR2});
  bool stops = false;
  auto fresh = torch::zeros_like(training.seen);
  try {
    training.run([&](const torch::Tensor& own) {
      fresh.add_(own);
      stops = stop.requested();
      if (stops || training.step % kSaveEvery == 0) {
        training.count_seen(fresh);
        checkpoints.save(training.step);
      }
      pause(arguments.pause_ms);
      return !stops;
    });
  } catch (const c10::DistError&) {
    if (const auto* sign = std::getenv("SAVE_ALONE_AFTER")) {
      save_alone(training, sign);
    }
    throw;
  }
  if (stops) {
    ddp::print(group, "stopped at step ", training.step);
    return kStopped;
  }
  training.count_seen(fresh);
  training.report();
  return 0;
}

void say(const char* what, const Training& training) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  std::printf(
      "rank %" PRId64 " of %" PRId64 " pid %d %s step %" PRId64 ". %" PRId64
      "\n",
      training.group.rank(),
      training.group.size(),
      static_cast<int>(getpid()),
      what,
      training.step,
      static_cast<int64_t>(
          std::chrono::duration_cast<std::chrono::milliseconds>(now).count()));
}

void train_in_process(ddp::ElasticRun& run, const Arguments& arguments) {
  Training training(run.group(), arguments);
  run.sync(training.state);
  std::printf("epoch %s.\n", std::getenv("DDP_EPOCH"));
  say("goes on from", training);
  training.run([&](torch::Tensor& own) {
    training.count_seen(own);
    say("did", training);
    pause(arguments.pause_ms);
    run.step();
    return true;
  });
  training.report();
}

} // namespace

int main(int, char** argv) {
  if (std::getenv("SAVE_ALONE_AFTER")) {
    std::signal(SIGTERM, SIG_IGN);
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const Arguments arguments{
      argv[1], std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4])};
  if (arguments.folder == "-") {
    ddp::elastic(
        [&](ddp::ElasticRun& run) { train_in_process(run, arguments); });
  } else {
    return train(arguments);
  }
}
