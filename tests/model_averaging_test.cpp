#include <tests/support/ranks.h>

#include <ddp/ddp.h>

namespace ddp::test::model_averaging_test {

/// The value that a parameter of `rank` has after each of six steps.
std::vector<double> values(
    ModelAverager& averager,
    double rank,
    int64_t first = 0) {
  std::vector<double> seen;
  for (int64_t step = first; step < 6; ++step) {
    auto parameter = torch::full({3, 2}, rank, torch::requires_grad());
    parameter.mutable_grad() = torch::zeros({3, 2});
    averager.average_parameters({parameter});
    REQUIRE(parameter.is_leaf());
    REQUIRE(parameter.eq(parameter[0][0]).all().item<bool>());
    seen.push_back(parameter[0][0].item<double>());
  }
  return seen;
}

RANKS_TEST("an averager goes on in the step of its checkpoint") {
  const auto options = PeriodicModelAveragerOptions().period(2).warmup_steps(3);
  PeriodicModelAverager whole(group, options);
  PeriodicModelAverager resumed(group, options);
  const double own = group.rank();
  const auto expected = values(whole, own);
  TrainingState state;
  state.add("averager", resumed);
  auto saved = state.state_dict(group);
  saved.toGenericDict().insert_or_assign("averager", 2);
  state.load_state_dict(saved, group);
  REQUIRE(
      values(resumed, own, 2) ==
      std::vector<double>(expected.begin() + 2, expected.end()));
  REQUIRE_THROWS_WITH(
      resumed.load_state_dict("text"), Has("not saved by a ModelAverager"));
}

RANKS_TEST("what some rank has a gradient for is averaged on all") {
  const double own = group.rank();
  const auto make = [&](at::ScalarType dtype) {
    return torch::full({2}, own, dtype).requires_grad_();
  };
  const auto all = make(torch::kFloat);
  const auto some = make(torch::kDouble);
  const auto none = make(torch::kFloat);
  all.mutable_grad() = torch::zeros({2});
  if (group.rank() == 1) {
    some.mutable_grad() = torch::zeros({2}, torch::kDouble);
  }
  torch::optim::SGD optimizer({all, some, none}, 0.1);
  PeriodicModelAverager averager(group, PeriodicModelAveragerOptions());
  averager.average_parameters(optimizer);
  REQUIRE(all.allclose(torch::ones({2})));
  REQUIRE(some.allclose(torch::ones({2}, torch::kDouble)));
  REQUIRE(some.scalar_type() == torch::kDouble);
  REQUIRE(none.eq(own).all().item<bool>());
}

TEST_CASE("averagers that cannot be are refused") {
  const ProcessGroup alone;
  const auto periodic = [&](int64_t period, int64_t warmup) {
    return PeriodicModelAverager(
        alone,
        PeriodicModelAveragerOptions().period(period).warmup_steps(warmup));
  };
  REQUIRE_THROWS_WITH(periodic(0, 0), Has("period is 0"));
  REQUIRE_THROWS_WITH(periodic(1, -1), Has("warmup_steps is -1"));
  const auto rejected = [&](const std::map<int64_t, int64_t>& sizes,
                            const std::string& reason) {
    REQUIRE_THROWS_WITH(
        HierarchicalModelAverager(
            alone, HierarchicalModelAveragerOptions().period_group_size(sizes)),
        Has(reason));
  };
  rejected({}, "is empty");
  rejected({{0, 1}}, "period 0 averages groups of 1 of 1 ranks");
  rejected({{1, 1}, {2, 3}}, "period 2 averages groups of 3 of 1 ranks");
  PeriodicModelAverager fine(alone, PeriodicModelAveragerOptions());
  fine.average_parameters(std::vector<at::Tensor>{torch::ones({1})});
  REQUIRE(fine.step() == 1);
}

} // namespace ddp::test::model_averaging_test
