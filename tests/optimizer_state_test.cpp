#include <tests/support/catch.h>

#include <ddp/ddp.h>
#include <tests/support/ivalue_text.h>
#include <tests/support/optimizers.h>

namespace ddp::test::optimizer_state_test {

using c10::IValue;
using torch::optim::Optimizer;

struct Run {
  std::vector<at::Tensor> parameters;
  std::unique_ptr<Optimizer> optimizer;

  /// Steps `first` to `last` of a training whose data depend on the step.
  void train(int first, int last) {
    for (int step = first; step < last; ++step) {
      const auto closure = [&] {
        torch::manual_seed(step);
        optimizer->zero_grad();
        auto loss = torch::zeros({});
        for (const auto& parameter : parameters) {
          const auto target = torch::randn(parameter.sizes());
          loss = loss + (parameter - target).pow(2).sum();
        }
        loss.backward();
        return loss;
      };
      optimizer->step(closure);
    }
  }
};

/// `last`: the dtype of the last parameter.
Run start(const MakeOptimizer& make, at::ScalarType last = at::kFloat) {
  torch::manual_seed(1);
  Run run;
  for (const auto& shape : std::vector<std::vector<int64_t>>{{3, 2}, {}, {4}}) {
    run.parameters.push_back(torch::randn(shape));
  }
  run.parameters.back() = run.parameters.back().to(last);
  for (auto& parameter : run.parameters) {
    parameter.requires_grad_();
  }
  run.optimizer = make(run.parameters);
  return run;
}

/// An optimizer that continues from a copy of the parameters, and also of the
/// state unless `forgets` is true.
Run go_on(const MakeOptimizer& make, const Run& from, bool forgets = false) {
  auto run = start(make, from.parameters.back().scalar_type());
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < run.parameters.size(); ++i) {
    run.parameters[i].copy_(from.parameters[i]);
  }
  if (!forgets) {
    load_optimizer_state(
        *run.optimizer, optimizer_state(*from.optimizer).deepcopy());
  }
  return run;
}

const std::vector<std::pair<std::string, MakeOptimizer>>& makers() {
  using namespace torch::optim;
  static const std::vector<std::pair<std::string, MakeOptimizer>> all = {
      {"SGD", maker<SGD>(SGDOptions(0.1))},
      {"SGD with momentum",
       maker<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true))},
      {"Adam", maker<Adam>(AdamOptions(0.1))},
      {"Adam with amsgrad", maker<Adam>(AdamOptions(0.1).amsgrad(true))},
      {"AdamW", maker<AdamW>(AdamWOptions(0.1))},
      {"RMSprop", maker<RMSprop>(RMSpropOptions(0.1))},
      {"RMSprop, centered",
       maker<RMSprop>(RMSpropOptions(0.1).momentum(0.9).centered(true))},
      {"Adagrad", maker<Adagrad>(AdagradOptions(0.1).lr_decay(0.01))},
      {"LBFGS", maker<LBFGS>(LBFGSOptions(0.1).max_iter(3))},
      {"FusedSGD", maker<FusedSGD>(SGDOptions(0.1).momentum(0.9))},
      {"FusedAdam", maker<FusedAdam>(AdamOptions(0.1).amsgrad(true))},
      {"FusedAdamW", maker<FusedAdamW>(AdamWOptions(0.1))}};
  return all;
}

c10::impl::GenericDict group_of(const IValue& state) {
  return entry(state, "param_groups").toList().get(0).toGenericDict();
}

TEST_CASE("an optimizer goes on from its state to the last bit") {
  for (const auto& [name, make] : makers()) {
    INFO(name);
    auto whole = start(make);
    whole.train(0, 4);
    auto resumed = go_on(make, whole);
    auto forgetful = go_on(make, whole, /*forgets=*/true);
    whole.train(4, 8);
    resumed.train(4, 8);
    forgetful.train(4, 8);
    bool matters = false;
    for (size_t i = 0; i < whole.parameters.size(); ++i) {
      REQUIRE(torch::equal(whole.parameters[i], resumed.parameters[i]));
      matters |= !torch::equal(whole.parameters[i], forgetful.parameters[i]);
    }
    REQUIRE(matters == (name != "SGD"));
  }
}

TEST_CASE("a loaded state brings its options with it") {
  auto from = start(maker<torch::optim::Adam>(
      torch::optim::AdamOptions(0.25).betas({0.5, 0.75}).weight_decay(0.125)));
  auto to = start(maker<torch::optim::Adam>(torch::optim::AdamOptions(0.1)));
  const auto state = optimizer_state(*from.optimizer);
  REQUIRE(group_of(state).at("lr").toDouble() == 0.25);
  REQUIRE(state.toGenericDict().at("state").toGenericDict().empty());
  load_optimizer_state(*to.optimizer, state);
  const auto& options = static_cast<torch::optim::AdamOptions&>(
      to.optimizer->param_groups()[0].options());
  REQUIRE(options.lr() == 0.25);
  REQUIRE(options.betas() == std::make_tuple(0.5, 0.75));
  REQUIRE(options.weight_decay() == 0.125);
}

TEST_CASE("LBFGS goes on from a state of Python after one iteration") {
  const auto make =
      maker<torch::optim::LBFGS>(torch::optim::LBFGSOptions(0.1).max_iter(1));
  auto whole = start(make);
  whole.train(0, 1);
  auto resumed = go_on(make, whole, /*forgets=*/true);
  auto state = optimizer_state(*whole.optimizer).deepcopy();
  const auto fields = entry(state, "state", 0).toGenericDict();
  REQUIRE(fields.at("H_diag").toTensor().item<double>() == 1);
  REQUIRE_FALSE(fields.contains("al")); // Python would use a None
  fields.insert_or_assign("H_diag", 1); // as in Python
  load_optimizer_state(*resumed.optimizer, state);
  whole.train(1, 4);
  resumed.train(1, 4);
  for (size_t i = 0; i < whole.parameters.size(); ++i) {
    REQUIRE(torch::equal(whole.parameters[i], resumed.parameters[i]));
  }
}

TEST_CASE("LBFGS goes on where a later parameter has more bits") {
  const auto make =
      maker<torch::optim::LBFGS>(torch::optim::LBFGSOptions(0.1).max_iter(3));
  auto whole = start(make, at::kDouble);
  whole.train(0, 4);
  auto resumed = go_on(make, whole);
  whole.train(4, 8);
  resumed.train(4, 8);
  for (size_t i = 0; i < whole.parameters.size(); ++i) {
    REQUIRE(torch::equal(whole.parameters[i], resumed.parameters[i]));
  }
}

TEST_CASE("SGD starts without a momentum that Python saved as None") {
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  for (const auto& make :
       {maker<torch::optim::SGD>(options), maker<FusedSGD>(options)}) {
    auto fresh = start(make), resumed = start(make);
    auto state = optimizer_state(*fresh.optimizer).toGenericDict();
    state.insert_or_assign(
        "state", dict({{1, dict({{"momentum_buffer", IValue()}})}}));
    load_optimizer_state(*resumed.optimizer, state);
    fresh.train(0, 3);
    resumed.train(0, 3);
    for (size_t i = 0; i < fresh.parameters.size(); ++i) {
      REQUIRE(torch::equal(fresh.parameters[i], resumed.parameters[i]));
    }
  }
}

TEST_CASE("a state of another optimizer is refused and changes nothing") {
  const auto make = maker<torch::optim::Adam>(torch::optim::AdamOptions(0.1));
  auto run = start(make);
  run.train(0, 2);
  const auto before = optimizer_state(*run.optimizer).deepcopy();
  const auto reject = [&](const IValue& state, const std::string& reason) {
    REQUIRE_THROWS_WITH(
        load_optimizer_state(*run.optimizer, state), Has(reason));
    const auto now = optimizer_state(*run.optimizer);
    REQUIRE(
        group_of(now).at("lr").toDouble() ==
        group_of(before).at("lr").toDouble());
    const auto moment = [](const IValue& value) {
      return entry(value, "state", 0, "exp_avg").toTensor();
    };
    REQUIRE(torch::equal(moment(now), moment(before)));
  };
  const auto refuse_changed = [&](const std::string& reason,
                                  const std::function<void(IValue&)>& change) {
    auto state = before.deepcopy();
    change(state);
    reject(state, reason);
  };
  const auto of_parameter = [](const IValue& state, int64_t index) {
    return entry(state, "state", index).toGenericDict();
  };
  reject(IValue(3), "the state is not a dictionary");
  reject(
      c10::impl::GenericDict(c10::AnyType::get(), c10::AnyType::get()),
      "the state has no 'param_groups'");
  refuse_changed("group 0 has no 'params'", [&](IValue& state) {
    (void)group_of(state).erase("params");
  });
  refuse_changed("group 0: 'betas' is missing", [&](IValue& state) {
    (void)group_of(state).erase("betas");
  });
  refuse_changed("group 0: 'lr' is not a number", [&](IValue& state) {
    group_of(state).insert_or_assign("lr", "fast");
  });
  refuse_changed(
      "'maximize' is True, which this optimizer does not support",
      [&](IValue& state) {
        group_of(state).insert_or_assign("maximize", true);
      });
  refuse_changed("'decoupled_weight_decay' is True", [&](IValue& state) {
    group_of(state).insert_or_assign("decoupled_weight_decay", true);
  });
  refuse_changed(
      "group 0 has 3 parameters in this optimizer and 2 in the state",
      [&](IValue& state) { group_of(state).at("params").toList().pop_back(); });
  refuse_changed(
      "parameter 2: 'exp_avg_sq' has shape [5], but its parameter has [4]",
      [&](IValue& state) {
        of_parameter(state, 2).insert_or_assign(
            "exp_avg_sq", torch::zeros({5}));
      });
  refuse_changed("parameter 1: 'exp_avg' is missing", [&](IValue& state) {
    (void)of_parameter(state, 1).erase("exp_avg");
  });
  auto sgd = start(maker<torch::optim::SGD>(torch::optim::SGDOptions(0.1)));
  reject(optimizer_state(*sgd.optimizer), "'betas' is missing");
}

TEST_CASE("an optimizer that nobody knows is refused by name") {
  struct Own : torch::optim::SGD {
    using SGD::SGD;
  };
  struct Other : Optimizer {
    using Optimizer::Optimizer;
    at::Tensor step(LossClosure /*closure*/) override {
      return {};
    }
  };
  const std::vector<at::Tensor> parameters{torch::zeros({1})};
  const Own own(parameters, torch::optim::SGDOptions(0.5));
  REQUIRE(group_of(optimizer_state(own)).at("lr").toDouble() == 0.5);
  struct Saved : Other {
    using Other::Other;
    IValue state_dict() const {
      return steps;
    }
    void load_state_dict(const IValue& state) {
      steps = state.toInt();
    }
    int64_t steps = 3;
  };
  const auto options = [] {
    return std::make_unique<torch::optim::SGDOptions>(0.1);
  };
  Other other(parameters, options());
  const auto refused =
      Has("::Other cannot be saved or loaded",
          "a class of the program that has state_dict()");
  REQUIRE_THROWS_WITH(optimizer_state(other), refused);
  TrainingState state;
  REQUIRE_THROWS_WITH(state.add("optimizer", other), refused);
  Saved saved(parameters, options());
  state.add("optimizer", saved);
  REQUIRE(entry(state.state_dict(), "optimizer").toInt() == 3);
}

// A scheduler that follows a metric resumes as if it had never stopped.

using Scheduler = torch::optim::ReduceLROnPlateauScheduler;

constexpr int kEpochs = 24;

struct PlateauRun {
  explicit PlateauRun(Scheduler::SchedulerMode mode)
      : scheduler(
            optimizer,
            mode,
            /*factor=*/0.5,
            /*patience=*/2,
            /*threshold=*/1e-4,
            Scheduler::rel,
            /*cooldown=*/2),
        sign(mode == Scheduler::min ? 1 : -1) {
    state.add("optimizer", optimizer).add("scheduler", scheduler);
  }

  /// The learning rates of epochs whose metric first improves, and then does
  /// not.
  std::vector<double> train(int begin, int end) {
    std::vector<double> rates;
    for (int epoch = begin; epoch < end; ++epoch) {
      scheduler.step(sign * (epoch < 5 ? 10 - epoch : 6));
      rates.push_back(optimizer.param_groups()[0].options().get_lr());
    }
    return rates;
  }

  torch::Tensor weight = torch::zeros({2}, torch::requires_grad());
  torch::optim::SGD optimizer{{weight}, 0.1};
  Scheduler scheduler;
  float sign;
  TrainingState state;
};

IValue scheduler_state(const PlateauRun& run) {
  return run.state.state_dict().toGenericDict().at("scheduler");
}

int64_t count(const PlateauRun& run, const char* key) {
  return scheduler_state(run).toGenericDict().at(key).toInt();
}

FOLDER_TEST("a plateau scheduler goes on with the same learning rates") {
  for (const auto mode : {Scheduler::min, Scheduler::max}) {
    const auto expected = PlateauRun(mode).train(0, kEpochs);
    REQUIRE(expected.front() != expected.back());
    int told_by_rates = 0;
    for (int stop = 0; stop <= kEpochs; ++stop) {
      INFO("stopped after " << stop);
      PlateauRun first(mode);
      first.train(0, stop);
      first.state.save(folder / "run.pt");

      PlateauRun resumed(mode);
      REQUIRE(resumed.state.load(folder / "run.pt"));
      const std::vector<double> rest(expected.begin() + stop, expected.end());
      REQUIRE(resumed.train(stop, kEpochs) == rest);
      REQUIRE(count(resumed, "last_epoch") == kEpochs);

      PlateauRun forgetful(mode);
      TrainingState only_optimizer;
      only_optimizer.add("optimizer", forgetful.optimizer);
      REQUIRE(only_optimizer.load(folder / "run.pt"));
      told_by_rates += forgetful.train(stop, kEpochs) != rest;
    }
    REQUIRE(told_by_rates > kEpochs / 2);
  }
}

TEST_CASE("a plateau scheduler's state has Python's names") {
  PlateauRun run(Scheduler::min);
  run.train(0, 7); // the last two did not improve
  const auto state = scheduler_state(run).toGenericDict();
  REQUIRE(state.size() == 4);
  REQUIRE(state.at("best").toDouble() == 6.0);
  REQUIRE(state.at("num_bad_epochs").toInt() == 2);
  REQUIRE(state.at("cooldown_counter").toInt() == 0);
  REQUIRE(state.at("last_epoch").toInt() == 7);
  run.train(7, 8);
  REQUIRE(count(run, "cooldown_counter") == 2);
  REQUIRE(count(run, "num_bad_epochs") == 0);
}

TEST_CASE("a state that is no plateau scheduler's is refused") {
  PlateauRun run(Scheduler::min);
  run.train(0, 3);
  const auto good = run.state.state_dict().deepcopy();
  run.train(3, 6);
  const auto reject = [&](const IValue& scheduler) {
    auto state = good.deepcopy();
    state.toGenericDict().insert_or_assign("scheduler", scheduler);
    REQUIRE_THROWS_WITH(
        run.state.load_state_dict(state),
        Has("'scheduler' is not a scheduler's"));
    REQUIRE(count(run, "last_epoch") == 6);
  };
  reject(3);
  for (const char* key :
       {"best", "num_bad_epochs", "cooldown_counter", "last_epoch"}) {
    auto fields = good.toGenericDict().at("scheduler").deepcopy();
    fields.toGenericDict().insert_or_assign(key, "much");
    reject(fields);
    REQUIRE(fields.toGenericDict().erase(key) == 1);
    reject(fields);
  }
  auto fields = good.toGenericDict().at("scheduler").toGenericDict();
  fields.insert_or_assign("best", 3); // as Python's may be
  fields.insert_or_assign("mode", "min");
  run.state.load_state_dict(good);
  REQUIRE(count(run, "last_epoch") == 3);
}

} // namespace ddp::test::optimizer_state_test
