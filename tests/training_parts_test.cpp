// How each kind of part of a TrainingState loads.
#include <ddp/ddp.h>
#include <tests/support/ivalue_text.h>
#include <tests/support/ranks.h>
#include <tests/support/samplers.h>
#include <tests/support/values.h>

namespace ddp::test::training_parts_test {

using c10::IValue;

TEST_CASE("a number is loaded from a tensor, as Python's programs save it") {
  double best = 0;
  int64_t step = 0;
  TrainingState state;
  state.add("best", best).add("step", step);
  const auto load = [&](const at::Tensor& new_best, const at::Tensor& count) {
    state.load_state_dict(dict({{"best", new_best}, {"step", count}}));
  };
  load(torch::tensor(71.5F), torch::tensor({3}));
  REQUIRE(best == 71.5);
  REQUIRE(step == 3);
  REQUIRE_THROWS_WITH(
      load(torch::ones({2}), torch::tensor(4)), Has("'best' is not a number"));
  REQUIRE_THROWS_WITH(
      load(torch::tensor(72.5), torch::tensor(4.5)),
      Has("'step' is not a whole number"));
  REQUIRE(best == 71.5);
}

/// A part whose load communicates with a rank that has ended.
struct LostPart {
  IValue state_dict() const {
    return int64_t{7};
  }
  void load_state_dict(const IValue& /*state*/) {
    C10_THROW_ERROR(DistBackendError, "rank 1 has ended");
  }
};

TEST_CASE("an error of communication in a part's load keeps its type") {
  LostPart part;
  TrainingState state;
  state.add("part", part);
  REQUIRE_THROWS_AS(
      state.load_state_dict(state.state_dict()), c10::DistBackendError);
}

TEST_CASE("a trained tensor is loaded in place, so its optimizer goes on") {
  auto log_alpha = torch::ones({2}, torch::requires_grad());
  torch::optim::SGD optimizer{{log_alpha}, 0.5};
  TrainingState state;
  state.add("log_alpha", log_alpha);
  const auto saved = state.state_dict().deepcopy();
  for (int loads = 0; loads < 2; ++loads) {
    optimizer.zero_grad();
    log_alpha.sum().backward();
    optimizer.step();
    REQUIRE(torch::equal(log_alpha, torch::full({2}, 0.5)));
    state.load_state_dict(saved);
    REQUIRE(torch::equal(log_alpha, torch::ones({2})));
  }
  REQUIRE_THROWS_WITH(
      state.load_state_dict(dict({{"log_alpha", torch::zeros({3})}})),
      Has("'log_alpha' is [3] in this state, [2] in the program"));
}

RANKS_TEST("a tensor is loaded into memory of its own") {
  const auto path = folder + "run.pt";
  const auto both = torch::ones({4});
  auto left = both.narrow(0, 0, 3), right = both.narrow(0, 1, 3);
  auto trained = torch::ones({2}, torch::requires_grad());
  TrainingState state;
  state.add("left", left).add("right", right).add("trained", trained);
  state.save(path, group);
  trained = torch::zeros({2}); // which the next run does not train
  REQUIRE(state.load(path, group));
  left.fill_(7);
  REQUIRE(torch::equal(right, torch::ones({3})));
  REQUIRE_FALSE(trained.requires_grad());

  const auto good = state.state_dict(group).deepcopy();
  for (int rollbacks = 0; rollbacks < 2; ++rollbacks) {
    state.load_state_dict(good, group);
    REQUIRE(torch::equal(left, torch::full({3}, 7.F)));
    left.mul_(2);
  }
}

TEST_CASE("a scaler and an averager are checked before any part is loaded") {
  const auto averager = [] {
    return PeriodicModelAverager({}, PeriodicModelAveragerOptions());
  };
  GradScaler disabled(GradScalerOptions().enabled(false));
  auto saved = averager();
  saved.load_state_dict(7);
  TrainingState state;
  state.add("averager", saved).add("scaler", disabled);
  auto dict = state.state_dict().toGenericDict();
  auto own = averager();
  GradScaler scaler(GradScalerOptions().init_scale(2));
  int64_t step = 3;
  TrainingState other;
  other.add("scaler", scaler).add("averager", own).add("step", step);
  dict.insert("step", 5);
  const auto reject = [&](const std::string& reason) {
    REQUIRE_THROWS_WITH(other.load_state_dict(dict), Has(reason));
    REQUIRE(own.state_dict().toInt() == 0);
    REQUIRE(scaler.get_scale() == 2);
    REQUIRE(step == 3);
  };
  reject("the state is empty");
  dict.insert_or_assign(
      "scaler", GradScaler(GradScalerOptions().init_scale(4)).state_dict());
  dict.insert_or_assign("averager", -1);
  reject("not saved by a ModelAverager");
  dict.insert_or_assign("averager", 7);
  other.load_state_dict(dict);
  REQUIRE(own.state_dict().toInt() == 7);
  REQUIRE(scaler.get_scale() == 4);
}

TEST_CASE("a scheduler's state counts epochs as Python does") {
  constexpr int kEnd = 8;
  struct Run {
    std::vector<double> train(int steps) {
      std::vector<double> rates;
      for (int i = 0; i < steps; ++i) {
        scheduler.step();
        rates.push_back(optimizer.param_groups()[0].options().get_lr());
      }
      return rates;
    }
    torch::Tensor weight = torch::zeros({2}, torch::requires_grad());
    torch::optim::SGD optimizer{{weight}, 0.5};
    torch::optim::StepLR scheduler{optimizer, 3, 0.5};
  };
  const auto expected = Run().train(kEnd);
  for (int steps = 0; steps < kEnd; ++steps) {
    Run first;
    first.train(steps);
    TrainingState state;
    state.add("optimizer", first.optimizer).add("scheduler", first.scheduler);
    auto saved = state.state_dict().toGenericDict();
    const auto counts = saved.at("scheduler").toGenericDict();
    REQUIRE(counts.at("last_epoch").toInt() == steps - 1);
    REQUIRE(counts.at("_step_count").toInt() == steps);
    // Of this version, of an earlier one, and of a scheduler of Python that
    // began at a later epoch.
    for (const auto& scheduler :
         {counts,
          dict({{"last_epoch", steps}}),
          dict({{"last_epoch", steps - 1}, {"_step_count", 1}})}) {
      Run resumed;
      TrainingState loaded;
      loaded.add("optimizer", resumed.optimizer);
      loaded.add("scheduler", resumed.scheduler);
      saved.insert_or_assign("scheduler", scheduler);
      loaded.load_state_dict(saved);
      const std::vector<double> rest(expected.begin() + steps, expected.end());
      REQUIRE(resumed.train(kEnd - steps) == rest);
    }
  }
}

RANKS_TEST("equal generators of GPUs with different indices stay equal") {
  std::string loaded;
  const auto sets = [&](const std::string& text) -> detail::Commit {
    return [&loaded, text] { loaded = text; };
  };
  const auto part = detail::per_rank_part(
      "random_state",
      nullptr,
      [&](const IValue& /*state*/) { return sets("saved"); },
      [&](uint64_t /*seed*/) { return sets("derived"); });
  for (const int64_t second : {3, 4}) {
    const auto states = list( // of two ranks
        {dict({{"cuda:0", torch::full({2}, 3)}}),
         dict({{"cuda:1", torch::full({2}, second)}})});
    part.load(states, group)();
    const bool same = group.rank() < 2 || second == 3;
    REQUIRE(loaded == (same ? "saved" : "derived"));
  }
}

} // namespace ddp::test::training_parts_test
