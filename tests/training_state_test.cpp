#include <ddp/ddp.h>
#include <tests/support/ivalue_text.h>
#include <tests/support/ranks.h>
#include <tests/support/samplers.h>
#include <tests/support/values.h>

namespace ddp::test::training_state_test {

using c10::IValue;

/// A training run that depends on everything a `TrainingState` can contain.
struct Training {
  explicit Training(const ProcessGroup& own_group = {})
      : group(own_group), sampler(64, group) {
    state.add("net", net).add("optimizer", optimizer);
    state.add("scheduler", scheduler).add("sampler", sampler);
    state.add("step", step).add("best", best).add("done", done);
    state.add("note", note).add("average", average).add_random_state();
    state.add_generator("own", own);
    sampler.reset();
  }

  void train(int steps) {
    for (int i = 0; i < steps; ++i, ++step) {
      const auto batch = sampler.next(2);
      const auto input = torch::full({2, 3}, double((*batch)[0]));
      const auto noise = torch::rand({2, 3}); // differs over ranks
      optimizer.zero_grad();
      auto loss = net->forward(input * noise).square().mean();
      loss.backward();
      for (const auto& parameter : net->parameters()) {
        group.all_reduce(parameter.mutable_grad(), ReduceOp::kMean);
      }
      loss = loss.detach();
      group.all_reduce(loss, ReduceOp::kMean);
      optimizer.step();
      scheduler.step();
      sampler.advance(2);
      best = std::min(best, loss.item<double>());
      average = average * 0.5 + loss;
      own();
      note += "+";
    }
  }

  /// The tensors that training has produced.
  std::vector<at::Tensor> result() {
    auto all = net->parameters();
    all.push_back(average.reshape({1}));
    all.push_back(torch::tensor({best, double(step), double(note.size())}));
    all.push_back(torch::rand({4}));
    all.push_back(torch::tensor(static_cast<int64_t>(own())));
    return all;
  }

  ProcessGroup group;
  torch::nn::Sequential net{
      torch::nn::Linear(3, 4),
      torch::nn::Dropout(0.5),
      torch::nn::Linear(4, 1)};
  torch::optim::Adam optimizer{net->parameters(), 0.1};
  torch::optim::StepLR scheduler{optimizer, 3, 0.5};
  DistributedSampler sampler;
  int step = 0;
  double best = 1e9;
  bool done = false;
  std::string note = "a run";
  at::Tensor average = torch::zeros({});
  std::mt19937 own{static_cast<uint32_t>(group.rank())};
  TrainingState state;
};

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), torch::equal);
}

RANKS_TEST("a training goes on from a file, which is written by rank 0") {
  const auto path = folder + "/run.pt";
  torch::manual_seed(3);
  Training whole(group);
  seed_rank_streams(7, 0, group);
  REQUIRE_FALSE(whole.state.load(path, group)); // there is none yet
  whole.train(4);
  whole.state.save(path, group);
  whole.train(4);
  const auto expected = whole.result();

  // Equal to the last bit on each rank if, and only if, no part is left out.
  for (const std::string left_out :
       {"", "optimizer", "random_state", "sampler", "own"}) {
    torch::manual_seed(99);
    Training resumed(group);
    resumed.train(1);
    if (left_out.empty()) {
      REQUIRE(resumed.state.load(path, group));
    } else {
      const auto own = resumed.state.state_dict(group);
      const auto dict = read_checkpoint_file(path);
      dict.toGenericDict().insert_or_assign(left_out, entry(own, left_out));
      resumed.state.load_state_dict(dict, group);
    }
    REQUIRE(resumed.step == 4);
    resumed.sampler.reset(); // as a loader does
    resumed.train(4);
    INFO("left out: " << left_out);
    REQUIRE(equal(resumed.result(), expected) == left_out.empty());
  }

  // An error on one rank is thrown on every rank.
  TrainingState one;
  int64_t value = 0;
  one.add("step", value);
  REQUIRE_THROWS_WITH(
      one.save(folder + "/no/such/folder.pt", group),
      Has("TrainingState::save on rank 0 of 3"));
  REQUIRE_THROWS_AS(one.save("run.bin", group), c10::ValueError);
}

RANKS_TEST("a state that has other parts on a rank is refused on all") {
  const auto path = folder + "/run.pt";
  torch::nn::Linear net(2, 2);
  int64_t step = 0;
  TrainingState state;
  state.add("step", step);
  if (group.rank() == 2) {
    state.add("net", net);
  }
  REQUIRE_THROWS_WITH(
      state.save(path, group),
      Has("the parts of a TrainingState differ between ranks: ranks 0 and "
          "1: 'step'; rank 2: 'step', 'net'. "));
  group.barrier();
  REQUIRE_FALSE(std::filesystem::exists(path));
}

RANKS_TEST("a state whose sampler has another epoch on a rank is refused") {
  const auto path = folder + "/run.pt";
  DistributedSampler sampler(12, group);
  TrainingState state;
  state.add("sampler", sampler);
  sampler.set_epoch(group.rank() == 0 ? 3 : 0); // by rank 0 only
  REQUIRE_THAT(
      error_on_all(group, [&] { state.save(path, group); }),
      Has("differ between ranks: rank 0: 'sampler' in epoch 3 (",
          "; ranks 1 and 2: 'sampler' in epoch 0 (",
          "call set_epoch on all"));
  REQUIRE_FALSE(std::filesystem::exists(path));
  sampler.set_epoch(3);
  state.save(path, group);
}

RANKS_TEST("a state whose sampler has other samples on a rank is refused") {
  const auto refusal = [&](auto& sampler) {
    TrainingState state;
    state.add("sampler", sampler);
    return error_on_all(group, [&] { state.state_dict(group); });
  };
  const bool other = group.rank() == 1;
  EvaluationSampler own(other ? 90 : 100, 1, 0); // of files on this host
  REQUIRE_THAT(
      refusal(own),
      Has("ranks 0 and 2: 'sampler' in epoch 0 (EvaluationSampler, length "
          "100); rank 1: 'sampler' in epoch 0 (EvaluationSampler, length 90). ",
          "rank_state_dict()"));
  auto loader = make_data_loader(
      Numbers(100),
      BatchSampler<DistributedSampler>(
          DistributedSampler(100, 1, 0, SamplerOptions().seed(other)),
          5,
          /*drop_last=*/false));
  REQUIRE_THAT(refusal(*loader), Has("seed 0); rank 1: ", "seed 1). "));

  DistributedSampler forgetful(100, group);
  if (other) {
    forgetful.next(2);
  }
  REQUIRE_THAT(refusal(forgetful), Has("; rank 1: ", "call advance("));
  if (other) {
    forgetful.advance(2); // ranks may be at different samples
  }
  REQUIRE(refusal(forgetful).empty());
}

TEST_CASE("a state that does not fit changes nothing") {
  Training training;
  training.train(2);
  const auto state = training.state.state_dict().deepcopy();
  training.train(1);
  const auto before = training.state.state_dict().deepcopy();
  const auto reject = [&](const std::string& name,
                          const std::optional<IValue>& value,
                          const std::string& reason) {
    auto dict = state.deepcopy().toGenericDict();
    if (value) {
      dict.insert_or_assign(name, *value);
    } else {
      REQUIRE(dict.erase(name) == 1);
    }
    REQUIRE_THROWS_WITH(training.state.load_state_dict(dict), Has(reason));
    REQUIRE(training.step == 3);
    REQUIRE(training.note == "a run+++");
    REQUIRE(torch::equal(
        training.net->parameters()[0],
        entry(before, "net", "0.weight").toTensor()));
  };
  reject("note", std::nullopt, "the state has no 'note'");
  reject("step", 1.5, "'step' is not a whole number");
  reject("best", "good", "'best' is not a number");
  reject("note", 3, "'note' is not a string");
  reject("average", 3, "'average' is not a tensor");
  reject("scheduler", 3, "'scheduler' is not a scheduler's");
  reject("net", 3, "'net': expected a dict of named tensors");
  reject("sampler", 3, "'sampler': expected a dict of named tensors");
  reject("optimizer", 3, "'optimizer': load_optimizer_state: invalid");
  reject("own", 3, "'own' is not a list of ranks' states");
  reject("random_state", 3, "not a list of ranks' states");
  torch::nn::Linear other(2, 2);
  TrainingState another;
  another.add("net", other);
  reject(
      "net",
      another.state_dict().toGenericDict().at("net"),
      "'net' does not fit the module");
  training.state.load_state_dict(state);
  REQUIRE(training.step == 2);
}

FOLDER_TEST("a link to a missing file begins no new run") {
  int64_t step = 0;
  TrainingState state;
  state.add("step", step);
  std::filesystem::create_symlink("step-3.pt", folder / "latest");
  REQUIRE_THROWS_WITH(
      state.load(folder / "latest"), Has("/latest': No such file"));
}

TEST_CASE("a part's name can be used once") {
  TrainingState state;
  int64_t value = 0;
  state.add("value", value);
  REQUIRE_THROWS_WITH(state.add("value", value), Has("'value' already"));
}

} // namespace ddp::test::training_state_test
