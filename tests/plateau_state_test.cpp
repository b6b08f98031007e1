// A scheduler that follows a metric goes on as one that never stopped.
#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/checkpoint/training_state.h>
#include <tests/support/catch.h>

namespace ddp::test::plateau_state_test {

using c10::IValue;
using Scheduler = torch::optim::ReduceLROnPlateauScheduler;

constexpr int kEpochs = 24;

struct Run {
  explicit Run(Scheduler::SchedulerMode mode)
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

  /// The learning rates of epochs whose metric gets better, and then does not.
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

std::vector<double> operator+(
    std::vector<double> head,
    const std::vector<double>& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

IValue scheduler_state(const Run& run) {
  return run.state.state_dict().toGenericDict().at("scheduler");
}

int64_t count(const Run& run, const char* key) {
  return scheduler_state(run).toGenericDict().at(key).toInt();
}

FOLDER_TEST("a plateau scheduler goes on with the same learning rates") {
  for (const auto mode : {Scheduler::min, Scheduler::max}) {
    const auto expected = Run(mode).train(0, kEpochs);
    REQUIRE(expected.front() != expected.back());
    int told_by_rates = 0;
    for (int stop = 0; stop <= kEpochs; ++stop) {
      INFO("stopped after " << stop);
      Run first(mode);
      const auto head = first.train(0, stop);
      first.state.save(folder / "run.pt");

      Run resumed(mode);
      REQUIRE(resumed.state.load(folder / "run.pt"));
      REQUIRE(head + resumed.train(stop, kEpochs) == expected);
      REQUIRE(count(resumed, "last_epoch") == kEpochs);

      Run forgetful(mode);
      TrainingState only_optimizer;
      only_optimizer.add("optimizer", forgetful.optimizer);
      REQUIRE(only_optimizer.load(folder / "run.pt"));
      told_by_rates += head + forgetful.train(stop, kEpochs) != expected;
    }
    REQUIRE(told_by_rates > kEpochs / 2);
  }
}

TEST_CASE("a plateau scheduler's state has Python's names") {
  Run run(Scheduler::min);
  run.train(0, 7); // two that were no better
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
  Run run(Scheduler::min);
  run.train(0, 3);
  const auto good = run.state.state_dict().deepcopy();
  run.train(3, 6);
  const auto refuse = [&](const IValue& scheduler) {
    auto state = good.deepcopy();
    state.toGenericDict().insert_or_assign("scheduler", scheduler);
    REQUIRE_THROWS_WITH(
        run.state.load_state_dict(state),
        Has("'scheduler' is no plateau scheduler's"));
    REQUIRE(count(run, "last_epoch") == 6);
  };
  refuse(3);
  for (const char* key :
       {"best", "num_bad_epochs", "cooldown_counter", "last_epoch"}) {
    auto fields = good.toGenericDict().at("scheduler").deepcopy();
    fields.toGenericDict().insert_or_assign(key, "much");
    refuse(fields);
    REQUIRE(fields.toGenericDict().erase(key) == 1);
    refuse(fields);
  }
  auto fields = good.toGenericDict().at("scheduler").toGenericDict();
  fields.insert_or_assign("best", 3); // as Python's may be
  fields.insert_or_assign("mode", "min");
  run.state.load_state_dict(good);
  REQUIRE(count(run, "last_epoch") == 3);
}

} // namespace ddp::test::plateau_state_test
