// States that several ranks save and load together.
#include <ddp/ddp.h>
#include <ddp/process_group/agreement/broadcast_value.h>
#include <tests/support/failures.h>
#include <tests/support/ivalue_text.h>
#include <tests/support/samplers.h>

namespace ddp::test::collective_state_test {

using c10::IValue;

/// Separate random numbers for each rank.
struct Random {
  explicit Random(const ProcessGroup& group)
      : own(static_cast<uint32_t>(group.rank())) {
    state.add_random_state().add_generator("own", own);
    seed_rank_streams(7, 0, group);
  }

  /// Seeds all ranks equally, as in a program that has just begun.
  void seed_alike(uint64_t seed) {
    torch::manual_seed(seed);
    own.seed(static_cast<uint32_t>(seed));
  }

  std::mt19937 own;
  TrainingState state;
};

/// The value of `number` on each rank.
std::vector<std::string> on_all(const ProcessGroup& group, double number) {
  return group.all_gather(std::to_string(number));
}

size_t different(const std::vector<std::string>& texts) {
  return std::set<std::string>(texts.begin(), texts.end()).size();
}

double draw() {
  return torch::rand({}, torch::kDouble).item<double>();
}

/// A program's part, which cannot check a state before it loads it.
struct OwnPart {
  IValue state_dict() const {
    TORCH_CHECK(!fails, "out of order");
    return int64_t{7};
  }
  void load_state_dict(const IValue& /*state*/) {
    TORCH_CHECK(!fails, "out of order");
    ++loads;
  }

  bool fails = false;
  int loads = 0;
};

/// A sharded optimizer that has made a step.
struct Sharded {
  explicit Sharded(const ProcessGroup& group)
      : optimizer(net->parameters(), group, torch::optim::AdamOptions(0.1)) {
    net->forward(torch::ones({2, 4})).sum().backward();
    optimizer.step();
  }

  /// The first moment of one of this rank's parameters.
  torch::optim::AdamParamState& moments() {
    return static_cast<torch::optim::AdamParamState&>(
        *optimizer.state().begin()->second);
  }

  torch::nn::Sequential net{torch::nn::Linear(4, 3), torch::nn::Linear(3, 2)};
  ZeroRedundancyOptimizer<torch::optim::Adam> optimizer;
};

RANKS_TEST("each rank has its own random numbers on another number of ranks") {
  Random random(group);
  const auto saved = random.state.state_dict(group).deepcopy();
  const auto expected = on_all(group, draw());
  const auto expected_own = on_all(group, random.own());
  std::set<std::string> of_first;
  for (const size_t size : {1, 2, 4}) {
    INFO("saved on " << size << " ranks");
    auto dict = saved.deepcopy();
    for (const auto* part : {"random_state", "own"}) {
      auto states = dict.toGenericDict().at(part).toList();
      states.resize(std::min<size_t>(size, 3), states.get(0));
      if (size == 4) {
        states.push_back(states.get(2));
      }
    }
    random.seed_alike(5);
    random.state.load_state_dict(dict, group);
    const auto drawn = on_all(group, draw());
    const auto own = on_all(group, random.own());
    REQUIRE(different(drawn) == 3);
    REQUIRE(different(own) == 3);
    for (size_t rank = 0; rank < std::min<size_t>(size, 3); ++rank) {
      REQUIRE(drawn[rank] == expected[rank]); // it continues
      REQUIRE(own[rank] == expected_own[rank]);
    }
    if (size == 1) { // derived from the state, and always the same
      random.seed_alike(99);
      random.state.load_state_dict(dict, group);
      REQUIRE(on_all(group, draw()) == drawn);
      REQUIRE(on_all(group, random.own()) == own);
      of_first.insert(drawn.begin() + 1, drawn.end());
      draw();
      const auto later = random.state.state_dict(group).deepcopy();
      for (const auto* part : {"random_state", "own"}) {
        auto states = later.toGenericDict().at(part).toList();
        states.resize(1, states.get(0));
      }
      random.state.load_state_dict(later, group);
      const auto other = on_all(group, draw());
      of_first.insert(other.begin() + 1, other.end());
      REQUIRE(of_first.size() == 4);
    }
  }
}

RANKS_TEST("random numbers that are equal on all ranks stay so on more ranks") {
  torch::manual_seed(5);
  TrainingState state;
  state.add_random_state();
  const auto dict = state.state_dict(group).deepcopy();
  auto states = dict.toGenericDict().at("random_state").toList();
  states.resize(2, states.get(0));
  const auto expected = draw();
  torch::manual_seed(100 + group.rank());
  state.load_state_dict(dict, group);
  REQUIRE(draw() == expected);
}

TEST_CASE("a run that two ranks saved goes on with three ranks' own numbers") {
  const SharedFolder folder;
  const auto path = folder.path + "run.pt";
  ranks(2, [&](ProcessGroup group) {
    Random random(group);
    random.state.save(path, group);
  });
  ranks(3, [&](ProcessGroup group) {
    Random random(group);
    random.seed_alike(3);
    REQUIRE(random.state.load(path, group));
    REQUIRE(different(on_all(group, draw())) == 3);
    REQUIRE(different(on_all(group, random.own())) == 3);
  });
}

RANKS_TEST("a part that fails on one rank fails the save on all ranks") {
  Sharded sharded(group);
  OwnPart part;
  part.fails = group.rank() == 1;
  for (const bool fails_first : {true, false}) {
    TrainingState state;
    if (fails_first) {
      state.add("part", part).add("optimizer", sharded.optimizer);
    } else {
      state.add("optimizer", sharded.optimizer).add("part", part);
    }
    REQUIRE_THROWS_WITH(
        state.state_dict(group), Has("on rank 1 of 3: out of order"));
    // No rank is in another collective than the others.
    REQUIRE(different(on_all(group, double(group.rank()))) == 3);
  }
}

/// A part that communicates, except on rank 1.
struct Meeting {
  IValue state_dict() const {
    TORCH_CHECK(group.rank() != 1, "out of order");
    group.barrier();
    return int64_t{7};
  }
  void load_state_dict(const IValue& /*state*/) {}

  ProcessGroup group;
};

RANKS_TEST("a part that fails amid its collectives is told of on all ranks") {
  Meeting part{group};
  TrainingState state;
  state.add("part", part);
  REQUIRE_THROWS_WITH(
      state.state_dict(group), Has("on rank 1 of 3: out of order"));
  meet_at_store(group, {"0", "1", "2"});
}

RANKS_TEST("a sharded state that one rank cannot send fails on all ranks") {
  Sharded sharded(group);
  if (group.rank() == 1) {
    sharded.moments().exp_avg(torch::empty({2}, torch::kMeta));
  }
  TrainingState state;
  state.add("optimizer", sharded.optimizer);
  REQUIRE_THROWS_WITH(state.state_dict(group), Has("on rank 1 of 3: "));
  REQUIRE(different(on_all(group, double(group.rank()))) == 3);
}

RANKS_TEST(
    "a state that does not fit on one rank changes nothing on any rank") {
  const auto path = folder + "run.pt";
  DistributedSampler sampler(64, group);
  auto loader = make_data_loader(Numbers(64), DistributedSampler(64, group));
  BatchSampler<DistributedSampler> batches(
      DistributedSampler(64, group), 4, /*drop_last=*/false);
  torch::nn::Linear net(2, 2);
  Sharded sharded(group);
  OwnPart part;
  int64_t step = 5;
  const auto parts = [&] {
    TrainingState state;
    state.add("part", part).add("sampler", sampler).add("loader", *loader);
    state.add("batches", batches).add("net", net);
    state.add("optimizer", sharded.optimizer).add("step", step);
    return state;
  };
  const auto set = [&](int64_t value) {
    const torch::NoGradGuard no_grad;
    sampler.set_epoch(value);
    loader->set_epoch(value);
    batches.set_epoch(value);
    step = value;
    net->weight.fill_(value);
    sharded.moments().exp_avg().fill_(value);
  };
  const auto is_at = [&](int64_t value) {
    const auto number = static_cast<double>(value);
    return sampler.epoch() == value && loader->epoch() == value &&
        batches.epoch() == value && step == value &&
        net->weight.eq(number).all().item<bool>() &&
        sharded.moments().exp_avg().eq(number).all().item<bool>();
  };
  set(5);
  parts().save(path, group);
  set(1);

  auto other = parts();
  int64_t unknown = 0;
  if (group.rank() == 1) {
    other.add("unknown", unknown);
  }
  REQUIRE_THROWS_WITH(
      other.load(path, group),
      Has("on rank 1 of 3: '" + path,
          "load_state_dict: the state has no 'unknown'"));
  REQUIRE(is_at(1));
  REQUIRE(part.loads == 0);

  // The values also stay unchanged if a part of the program fails.
  part.fails = group.rank() == 1;
  REQUIRE_THROWS_WITH(
      parts().load(path, group), Has("on rank 1 of 3", "'part': out of order"));
  REQUIRE(is_at(1));
  part.fails = false;
  REQUIRE(parts().load(path, group));
  REQUIRE(is_at(5));
}

RANKS_TEST("an optimizer's state is loaded with its parameter's strides") {
  auto weight = torch::ones({2, 3, 2, 2})
                    .contiguous(at::MemoryFormat::ChannelsLast)
                    .requires_grad_();
  torch::optim::Adam optimizer({weight}, 0.1);
  TrainingState state;
  state.add("optimizer", optimizer);
  weight.sum().backward();
  optimizer.step();
  state.save(folder + "run.pt", group);
  REQUIRE(state.load(folder + "run.pt", group));
  const auto moment =
      entry(optimizer_state(optimizer), "state", 0, "exp_avg").toTensor();
  REQUIRE(moment.strides() == weight.strides());
  REQUIRE(moment.sum().item<float>() != 0);
}

RANKS_TEST("a value is sent as it reads, whatever its memory holds") {
  const auto numbers = torch::arange(1, 7, torch::kDouble);
  const auto complex = torch::complex(numbers, -numbers);
  const std::vector<at::Tensor> tensors{
      complex.conj(),
      torch::imag(complex.conj()),
      torch::imag(complex.conj()).slice(0, 2, 5),
      torch::ones({}).expand({3}),
      numbers.slice(0, 3, 5)};
  for (const auto& tensor : tensors) {
    const auto sent = detail::broadcast_value(
        group.rank() == 1 ? IValue(tensor) : IValue(), group, 1);
    REQUIRE(torch::equal(sent.toTensor(), tensor.clone()));
  }
}

} // namespace ddp::test::collective_state_test
