// A run that is killed repeatedly ends like an undisturbed one.
#include <tests/support/free_port.h>
#include <tests/support/ivalue_text.h>
#include <tests/support/ranks.h>

#include <ddp/ddp.h>

namespace ddp::test::resume_test {

using namespace std::chrono_literals;

constexpr int kWorld = 3;
constexpr size_t kSamples = 65; // the last batch of an epoch is smaller
constexpr int64_t kEpochs = 10;
constexpr int64_t kSteps = kEpochs * 6;
constexpr int64_t kInterval = 3; // between saves
constexpr uint64_t kSeed = 5;

/// Augments each sample by its own generator; workers run copies.
struct Augmented : torch::data::datasets::Dataset<Augmented, torch::Tensor> {
  torch::Tensor get(size_t index) override {
    std::mt19937_64 random(sample_seed(kSeed, *epoch, index));
    std::normal_distribution<float> noise(static_cast<float>(index) / kSamples);
    std::vector<float> values(6);
    std::generate(values.begin(), values.end(), [&] { return noise(random); });
    return torch::tensor(values);
  }
  std::optional<size_t> size() const override {
    return kSamples;
  }
  std::shared_ptr<std::atomic<int64_t>> epoch =
      std::make_shared<std::atomic<int64_t>>(0);
};

struct Training {
  Training(const std::string& folder, bool asynchronous)
      : group(init_process_group()),
        checkpoints(
            folder,
            whole_state(),
            group,
            CheckpointManagerOptions().keep_last(2).asynchronous(
                asynchronous)) {}

  TrainingState& whole_state() {
    state.add("net", net).add("reducer", reducer).add("scheduler", scheduler);
    state.add("sampler", sampler).add("step", step).add("loss", loss);
    state.add("optimizer", optimizer).add_random_state();
    return state.add_generator("own", own);
  }

  void train_step(const std::vector<torch::Tensor>& batch) {
    auto input = torch::stack(batch);
    input *= torch::rand_like(input) + static_cast<double>(own() % 7);
    optimizer.zero_grad();
    const auto value = net->forward(input).square().mean();
    value.backward();
    optimizer.step();
    scheduler.step();
    sampler.advance(batch.size());
    auto mean = value.detach();
    group.all_reduce(mean, ReduceOp::kMean);
    loss = loss * 0.9 + mean.item<double>();
    ++step;
  }

  ProcessGroup group;
  uint64_t seed = manual_seed(kSeed, group);
  torch::nn::Sequential net{
      torch::nn::Linear(6, 32),
      torch::nn::Tanh(),
      torch::nn::Dropout(0.2),
      torch::nn::Linear(32, 8),
      torch::nn::BatchNorm1d(8),
      torch::nn::Linear(8, 2)};
  // Several buckets, rebuilt after the first step.
  Reducer reducer{net, group, ReducerOptions().bucket_cap_mb(3e-4)};
  torch::optim::Adam optimizer{net->parameters(), 0.01};
  torch::optim::StepLR scheduler{optimizer, 7, 0.8};
  DistributedSampler sampler{kSamples, group};
  int64_t step = 0;
  double loss = 0;
  std::mt19937 own{static_cast<unsigned>(3 + group.rank())};
  TrainingState state;
  CheckpointManager checkpoints;
};

void train(const std::string& folder, bool asynchronous) {
  Training run(folder, asynchronous);
  seed_rank_streams(kSeed, 0, run.group);
  const auto found = run.checkpoints.load();
  std::cout << "from " << (found ? found->step : 0) << std::endl;
  Augmented data;
  auto loader = torch::data::make_data_loader(
      data, run.sampler, torch::data::DataLoaderOptions(4).workers(2));
  for (auto epoch = run.sampler.epoch(); epoch < kEpochs; ++epoch) {
    run.sampler.set_epoch(epoch);
    *data.epoch = epoch;
    for (const auto& batch : *loader) {
      run.train_step(batch);
      if (run.step % kInterval == 0) {
        run.checkpoints.save(run.step);
      }
      std::cout << "step " << run.step << '.' << std::endl;
    }
  }
  run.checkpoints.wait();
  const auto rank = std::to_string(run.group.rank());
  std::ofstream(folder + ".rank" + rank)
      << text_of(run.state.state_dict(run.group));
  std::cout << "ended" << std::endl;
}

/// The number of the last line of a rank's output that begins with `word`, or
/// -1. The last line may be cut off.
int64_t last_number(const std::string& output, const std::string& word) {
  int64_t number = -1;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream parts(line);
    std::string first;
    int64_t second = 0;
    if (parts >> first >> second && first == word) {
      number = second;
    }
  }
  return number;
}

/// Starts runs in folders, each with the same processes.
class Runs {
 public:
  std::vector<Process> start(const std::string& folder, bool asynchronous) {
    const auto port = std::to_string(free_port());
    std::vector<Process> ranks;
    for (auto command : commands_) {
      command.environment["MASTER_PORT"] = port;
      command.environment["DDP_TEST_RUN"] = folder;
      command.environment["DDP_TEST_ASYNCHRONOUS"] = asynchronous ? "1" : "";
      ranks.emplace_back(command);
    }
    return ranks;
  }

 private:
  std::vector<Command> commands_ = commands_of_ranks(kWorld, [] {
    train(
        std::getenv("DDP_TEST_RUN"),
        std::getenv("DDP_TEST_ASYNCHRONOUS") != nullptr);
  });
};

/// A run of which a random rank is killed at a random moment, `kills` times,
/// and which is resumed to the end. The other ranks end by themselves.
struct KilledRun {
  std::string folder;
  bool asynchronous = false;
  int kills = 0;

  /// The difference from the expected result; empty if there is none.
  std::string difference(Runs& runs, std::mt19937& random) const {
    // A checkpoint that is being written in the background may also be lost.
    const auto lost = kInterval * (asynchronous ? 2 : 1);
    int64_t reached = 0;
    for (int kill = 0; kill <= kills; ++kill) {
      auto ranks = runs.start(folder, asynchronous);
      const auto victim = random() % kWorld;
      if (kill < kills) {
        const auto span = (kSteps - 12 - reached) / (kills - kill);
        // A checkpoint exists before the first kill.
        const auto step = std::max(reached, kInterval * 2) + 1 +
            static_cast<int64_t>(random()) % std::max<int64_t>(1, span);
        ranks[victim].wait_for("step " + std::to_string(step) + ".", 60s);
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
        ranks[victim].signal(SIGKILL);
      }
      const auto before = reached;
      for (size_t rank = 0; rank < ranks.size(); ++rank) {
        const auto outcome = ranks[rank].finish(60s);
        const bool killed = kill < kills && rank == victim;
        if (outcome.hung || (killed && outcome.exit_code != 128 + SIGKILL) ||
            (kill == kills && outcome.exit_code != 0)) {
          return outcome.output;
        }
        const auto began = last_number(outcome.output, "from");
        if (kill > 0 && (began <= 0 || began < before - lost)) {
          return "began from " + std::to_string(began) + " after " +
              std::to_string(before);
        }
        reached = std::max(reached, last_number(outcome.output, "step"));
      }
    }
    return "";
  }
};

std::string result(const std::string& folder) {
  std::string all;
  for (int rank = 0; rank < kWorld; ++rank) {
    all += read_text(folder + ".rank" + std::to_string(rank));
  }
  return all;
}

TEST_CASE("a run that is killed goes on from its last checkpoint, bit by bit") {
  const SharedFolder shared;
  Runs runs;
  std::mt19937 random(7);
  const auto whole = shared.path + "whole";
  REQUIRE(KilledRun{whole}.difference(runs, random) == "");
  const auto expected = result(whole);
  REQUIRE(expected.find("exp_avg") != std::string::npos);
  for (const bool asynchronous : {false, true}) {
    int left = variable("DDP_TEST_KILLS", 4);
    for (int run = 0; left > 0; ++run) {
      const auto kills = std::min(left, 5);
      left -= kills;
      const auto folder =
          shared.path + (asynchronous ? "a" : "s") + std::to_string(run);
      REQUIRE(
          KilledRun{folder, asynchronous, kills}.difference(runs, random) ==
          "");
      const bool equal = result(folder) == expected;
      INFO(folder);
      REQUIRE(equal);
    }
  }
}

} // namespace ddp::test::resume_test
