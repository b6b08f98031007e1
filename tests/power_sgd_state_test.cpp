// The state that PowerSGD keeps between steps and between runs.
#include <tests/support/hook_training.h>
#include <tests/support/ivalue_text.h>
#include <tests/support/ranks.h>

#include <ddp/ddp.h>

namespace ddp::test::power_sgd_state_test {

/// A training run that stops after some steps; another object may resume it.
struct Run {
  Run(const ProcessGroup& own_group,
      const PowerSGDOptions& options,
      bool in_half = false)
      : group(own_group),
        hook(std::make_shared<PowerSGDHook>(options)),
        reducer(
            parameters,
            group,
            in_half ? hook_options(fp16_compress_hook(hook))
                    : hook_options(hook)) {
    state.add("reducer", reducer).add("step", step);
  }

  void train_to(int64_t end) {
    for (; step < end; ++step) {
      backward_to(parameters, hook_gradients(step, group.rank()));
    }
  }

  bool has_bits_of(const Run& other) const {
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!parameters[i].grad().equal(other.parameters[i].grad())) {
        return false;
      }
    }
    return true;
  }

  ProcessGroup group;
  std::shared_ptr<PowerSGDHook> hook;
  std::vector<at::Tensor> parameters = hook_parameters();
  Reducer reducer;
  int64_t step = 0;
  TrainingState state;
};

RANKS_TEST("a run that goes on from a file has the bits of one that did not") {
  const auto compare = [&](const PowerSGDOptions& options, bool in_half) {
    Run whole(group, options, in_half);
    whole.train_to(8);
    for (const int64_t stop : {1, 3, 5}) {
      INFO("stopped after " << stop);
      const auto path = folder + "/run.pt";
      Run first(group, options, in_half);
      first.train_to(stop);
      first.state.save(path, group);
      first.train_to(stop + 1); // after the save
      for (const int64_t before : {0, 4}) { // fresh, and in use
        Run resumed(group, options, in_half);
        resumed.train_to(before);
        REQUIRE(resumed.state.load(path, group));
        REQUIRE(resumed.step == stop);
        resumed.train_to(8);
        REQUIRE(resumed.has_bits_of(whole));
      }
      Run forgetful(group, options, in_half);
      forgetful.train_to(8 - stop); // with other gradients
      REQUIRE(!forgetful.has_bits_of(whole));
    }
  };
  compare(early(), false);
  compare(early().matrix_approximation_rank(3), true);
  compare(early().warm_start(false), false);
  compare(early().use_error_feedback(false), false);
  compare(early().whole_bucket(true), false);
}

RANKS_TEST("each rank's errors are in the state, and only there") {
  Run run(group, early());
  run.train_to(4);
  const auto errors = entry(run.reducer.rank_state_dict(), "errors").toList();
  REQUIRE(errors.size() == run.reducer.buckets().size());
  REQUIRE(!equal_on_all(group, errors.get(0).toTensor()));
  const auto state = run.state.state_dict(group).toGenericDict();
  REQUIRE(state.at("reducer_of_each_rank").toList().size() == 3);
  const auto factors_of_all =
      entry(state.at("reducer"), "comm_hook", "factors").toList();
  for (const c10::IValue& factors : factors_of_all.vec()) {
    REQUIRE(equal_on_all(group, factors.toTensor()));
  }

  // From another number of ranks: everything but the errors is loaded.
  auto dict = run.state.state_dict(group).deepcopy();
  auto list = dict.toGenericDict().at("reducer_of_each_rank").toList();
  list.pop_back();
  Run fewer(group, early());
  fewer.state.load_state_dict(dict, group);
  const auto left = entry(fewer.reducer.rank_state_dict(), "errors").toList();
  for (const c10::IValue& error : left.vec()) {
    REQUIRE(error.toTensor().numel() == 0);
  }
  fewer.train_to(6);
  REQUIRE(dict.toGenericDict().erase("reducer_of_each_rank") == 1);
  Run none(group, early());
  none.state.load_state_dict(dict, group);
  none.train_to(6);
  REQUIRE(none.has_bits_of(fewer));

  Run without(group, early().use_error_feedback(false));
  REQUIRE(!without.state.state_dict(group).toGenericDict().contains(
      "reducer_of_each_rank"));
  REQUIRE_THROWS_WITH(
      run.hook->load_state_dict(3), Has("not saved by a PowerSGDHook"));
  REQUIRE_THROWS_WITH(
      run.hook->load_rank_state_dict(run.hook->state_dict()),
      Has("not saved by a PowerSGDHook"));
}

RANKS_TEST("what is known of a bucket is dropped with its parameters") {
  PowerSGDHook hook(early());
  const auto error_after = [&](const at::Tensor& parameter, int64_t step) {
    GradBucket bucket;
    bucket.iteration = step;
    torch::manual_seed(1);
    bucket.buffer = torch::randn({1200});
    bucket.gradients = {bucket.buffer.view({30, 40})};
    bucket.parameters = {parameter};
    hook.run(bucket, group)->waitAndThrow();
    const auto errors = entry(hook.rank_state_dict(), "errors").toList();
    return largest(errors.get(0).toTensor());
  };
  const auto first = torch::zeros({30, 40});
  const auto other = torch::zeros({30, 40});
  for (int step = 0; step < 2; ++step) {
    GradBucket bucket;
    bucket.iteration = step;
    bucket.buffer = torch::zeros({1200});
    hook.run(bucket, group)->waitAndThrow();
  }
  const auto once = error_after(first, 2);
  double several = 0;
  for (int step = 3; step < 12; ++step) {
    several = error_after(first, step);
  }
  REQUIRE(several > 1.5 * once); // they add up
  REQUIRE(error_after(other, 12) < 1.5 * once);
}

} // namespace ddp::test::power_sgd_state_test
