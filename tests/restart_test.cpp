// A run that is killed and gone on with is the one that was not.
#include <tests/support/ranks.h>
#include <tests/support/shared_folder.h>

#include <ddp/checkpoint/checkpoint.h>
#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/random.h>
#include <ddp/reducer.h>
#include <ddp/samplers/distributed_sampler.h>

#include <string_view>

namespace ddp::test::restart_test {

using namespace std::chrono_literals;

constexpr int kWorld = 3;
constexpr int64_t kEpochs = 3;
constexpr uint64_t kSeed = 11;
constexpr size_t kSize = 100; // so that the last batch of an epoch is smaller
constexpr size_t kBatch = 4;
constexpr int64_t kStepsInEpoch = 9;
constexpr int64_t kSavedStep = 5; // of epoch 1
constexpr int64_t kKilledStep = 7;

struct Sample {
  size_t index = 0;
  torch::Tensor values;
};

/// Augments each sample by a generator of its own; workers run copies.
struct Augmented : torch::data::datasets::Dataset<Augmented, Sample> {
  Sample get(size_t index) override {
    std::mt19937_64 random(sample_seed(kSeed, *epoch, index));
    std::normal_distribution<float> noise(static_cast<float>(index) / kSize, 1);
    std::vector<float> values(6);
    for (auto& value : values) {
      value = noise(random);
    }
    return {index, torch::tensor(values)};
  }
  std::optional<size_t> size() const override {
    return kSize;
  }
  std::shared_ptr<std::atomic<int64_t>> epoch =
      std::make_shared<std::atomic<int64_t>>(0);
};

/// What a run does; `forgets` names what is not loaded, by its prefix.
struct Plan {
  std::string name;
  bool is_killed = false;
  bool goes_on = false;
  std::string forgets = "nothing";
};

struct Training {
  explicit Training(const ProcessGroup& group_) : group(group_) {
    program.seed(static_cast<unsigned>(rank_seed(kSeed, 0, group.rank())));
  }

  void step_on(const std::vector<Sample>& batch) {
    std::vector<torch::Tensor> rows;
    for (const auto& sample : batch) {
      rows.push_back(sample.values);
    }
    const auto scale = 1 + 1e-10 * program();
    optimizer.zero_grad();
    net->forward(torch::stack(rows) * scale).pow(2).mean().backward();
    optimizer.step();
    sampler.advance(batch.size());
  }

  void save(const std::string& path) const {
    StateDict state;
    const auto insert = [&](const std::string& prefix, const auto& tensors) {
      for (const auto& entry : tensors) {
        state.insert(prefix + entry.key(), entry.value());
      }
    };
    insert("net.", net->named_parameters());
    insert("sampler.", sampler.state_dict());
    insert("random.", random_state());
    state.insert("program", generator_state(program));
    for (const auto& entry : net->named_parameters()) {
      const auto& own = *optimizer.state().at(key(entry.value()));
      state.insert(
          "momentum." + entry.key(),
          static_cast<const torch::optim::SGDParamState&>(own)
              .momentum_buffer());
    }
    write_safetensors(path, state);
  }

  void load(const std::string& path, const std::string& forgets) {
    const torch::NoGradGuard no_grad;
    const auto state = read_safetensors(path).tensors;
    const auto part = [&](const std::string& prefix) {
      StateDict result;
      for (const auto& entry : state) {
        if (entry.key().rfind(prefix, 0) == 0 && prefix != forgets) {
          result.insert(entry.key().substr(prefix.size()), entry.value());
        }
      }
      return result;
    };
    auto parameters = net->named_parameters();
    for (const auto& entry : part("net.")) {
      parameters[entry.key()].copy_(entry.value());
    }
    for (const auto& entry : part("momentum.")) {
      auto own = std::make_unique<torch::optim::SGDParamState>();
      own->momentum_buffer(entry.value());
      optimizer.state()[key(parameters[entry.key()])] = std::move(own);
    }
    sampler.load_state_dict(part("sampler."));
    set_random_state(part("random."));
    for (const auto& entry : part("program")) {
      set_generator_state(program, entry.value());
    }
    steps = state["sampler.samples_done"].item<int64_t>() /
        static_cast<int64_t>(kWorld * kBatch);
  }

  static void* key(const torch::Tensor& parameter) {
    return parameter.unsafeGetTensorImpl();
  }

  ProcessGroup group;
  uint64_t seed = manual_seed(kSeed, group);
  torch::nn::Sequential net{
      torch::nn::Linear(6, 16),
      torch::nn::ReLU(),
      torch::nn::Dropout(0.5),
      torch::nn::Linear(16, 2)};
  Reducer reducer{net, group};
  torch::optim::SGD optimizer{
      net->parameters(),
      torch::optim::SGDOptions(0.01).momentum(0.9)};
  DistributedSampler sampler{kSize, group, SamplerOptions().seed(kSeed)};
  std::mt19937 program;
  int64_t steps = 0; // that were taken in the current epoch
};

size_t hash_of(const torch::nn::Module& net) {
  size_t hash = 0;
  for (const auto& parameter : net.parameters()) {
    const std::string_view bytes(
        static_cast<const char*>(parameter.const_data_ptr()),
        parameter.nbytes());
    hash = hash * 31 + std::hash<std::string_view>()(bytes);
  }
  return hash;
}

std::string log_path(const std::string& folder, const Plan& plan, int64_t r) {
  return folder + plan.name + std::to_string(r);
}

/// One rank's run. Its log has a line for where it began and one for each step:
/// when it was, the weights after it, and the samples.
void train(const std::string& folder, const Plan& plan) {
  const auto group = init_process_group();
  Training run(group);
  const auto state = folder + "state" + std::to_string(group.rank());
  if (plan.goes_on) {
    run.load(state, plan.forgets);
  }
  std::ofstream log(log_path(folder, plan, group.rank()));
  log << "from " << run.sampler.epoch() << ' ' << run.steps << std::endl;
  Augmented data;
  auto loader = torch::data::make_data_loader(
      data, run.sampler, torch::data::DataLoaderOptions(kBatch).workers(2));
  for (auto epoch = run.sampler.epoch(); epoch < kEpochs; ++epoch) {
    run.sampler.set_epoch(epoch);
    *data.epoch = epoch;
    if (run.steps == 0) {
      seed_rank_streams(kSeed, epoch, group);
    }
    for (auto& batch : *loader) {
      run.step_on(batch);
      log << epoch << ' ' << run.steps << ' ' << hash_of(*run.net);
      for (const auto& sample : batch) {
        log << ' ' << sample.index;
      }
      log << std::endl;
      ++run.steps;
      if (plan.is_killed && epoch == 1 && run.steps == kSavedStep) {
        run.save(state);
      }
      if (plan.is_killed && epoch == 1 && run.steps == kKilledStep) {
        std::cout << "in the middle" << std::endl;
        for (;;) {
          pause();
        }
      }
    }
    run.steps = 0;
  }
  save_checkpoint(folder + plan.name + ".safetensors", *run.net, group);
}

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
  }
  return lines;
}

/// Why `before`, up to where it was saved, and then `after` are together not
/// the run `whole`; nothing where they are.
std::string difference(
    const std::string& folder,
    const Plan& whole,
    const Plan& before,
    const Plan& after) {
  for (int r = 0; r < kWorld; ++r) {
    const auto expected = lines_of(log_path(folder, whole, r));
    auto seen = lines_of(log_path(folder, before, r));
    const auto rest = lines_of(log_path(folder, after, r));
    const auto saved = 1 + kStepsInEpoch + kSavedStep;
    if (expected.size() != 1 + kEpochs * kStepsInEpoch ||
        static_cast<int64_t>(seen.size()) < saved) {
      return "a run is too short";
    }
    if (rest.at(0) != "from 1 " + std::to_string(kSavedStep)) {
      return "began " + rest.at(0);
    }
    seen.resize(saved);
    seen.insert(seen.end(), rest.begin() + 1, rest.end());
    for (size_t i = 0; i < std::max(seen.size(), expected.size()); ++i) {
      if (i >= seen.size() || i >= expected.size() || seen[i] != expected[i]) {
        return "another step " + std::to_string(i);
      }
    }
  }
  const auto weights = [&](const Plan& plan) {
    return read_text(folder + plan.name + ".safetensors");
  };
  return weights(whole) == weights(after) ? "" : "other weights";
}

void run(const std::string& folder, const Plan& plan) {
  ranks(kWorld, [&] { train(folder, plan); });
}

/// Ends all ranks of a run with SIGKILL when each has come to the middle.
void run_and_kill(const std::string& folder, const Plan& plan) {
  std::vector<Process> processes;
  for (const auto& command :
       commands_of_ranks(kWorld, [&] { train(folder, plan); })) {
    processes.emplace_back(command);
  }
  for (auto& process : processes) {
    REQUIRE(process.wait_for("in the middle", 60s));
  }
  for (auto& process : processes) {
    process.signal(SIGKILL);
  }
  for (auto& process : processes) {
    REQUIRE(process.finish(60s).exit_code == 128 + SIGKILL);
  }
}

TEST_CASE(
    "a run that is killed goes on in the middle of an epoch, bit by bit") {
  const SharedFolder folder;
  const Plan whole{"whole"};
  const Plan killed{"killed", true};
  const Plan resumed{"resumed", false, true};
  const Plan anew{"anew"};
  const std::vector<Plan> forgetful{
      {"without-momentum", false, true, "momentum."},
      {"without-random-state", false, true, "random."},
      {"without-program", false, true, "program"}};
  run(folder.path, whole);
  run_and_kill(folder.path, killed);
  run(folder.path, resumed);
  run(folder.path, anew);
  for (const auto& plan : forgetful) {
    run(folder.path, plan);
  }
  const auto difference_of = [&](const Plan& plan) {
    return difference(folder.path, whole, killed, plan);
  };
  REQUIRE(difference_of(resumed).empty());
  // The same check sees a run that began anew, and whatever is forgotten.
  REQUIRE(difference_of(anew) == "began from 0 0");
  for (const auto& plan : forgetful) {
    INFO(plan.name);
    REQUIRE(difference_of(plan) == "another step 15");
  }
}

} // namespace ddp::test::restart_test
