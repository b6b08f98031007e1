// Random numbers of steps on each rank, compared with one process.
#include <tests/support/either_way.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

namespace ddp::test::join_schedules_test {

torch::Tensor inputs_of(int64_t seed, int64_t rank, int64_t step) {
  torch::manual_seed((seed * 100 + rank) * 100 + step);
  return torch::randn({3, 4}, torch::kDouble);
}

/// A schedule from a seed, the same on all ranks.
struct Schedule {
  Schedule(int64_t its_seed, int64_t size) : seed(its_seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    const auto below = [&random](uint64_t limit) {
      return static_cast<int64_t>(random() % limit);
    };
    for (int64_t rank = 0; rank < size; ++rank) {
      steps.push_back(below(7));
    }
    sync_every = 1 + below(3);
    by_initial = below(2) == 0;
    wrapped = below(2) == 0;
    in_backward = below(3) == 0;
    branches = below(2) == 0;
    views = below(2) == 0;
    small_buckets = below(2) == 0;
    zeroes = below(2) == 0;
  }

  ReducerOptions options() const {
    ReducerOptions result;
    result.share_communicator(true).gradient_as_bucket_view(views);
    if (small_buckets) {
      result.bucket_cap_mb(0.0001);
    }
    return result;
  }

  /// Whether a rank takes the left branch in a step.
  bool goes_left(int64_t rank, int64_t step) const {
    return !branches || (rank + step) % 2 == 0;
  }

  int64_t seed;
  std::vector<int64_t> steps;
  int64_t sync_every;
  bool by_initial;
  bool wrapped;
  bool in_backward;
  bool branches;
  bool views;
  bool small_buckets;
  bool zeroes;
};

std::shared_ptr<BranchNet> start_net(int64_t seed) {
  torch::manual_seed(seed);
  auto net = std::make_shared<BranchNet>();
  net->to(torch::kDouble);
  return net;
}

torch::optim::SGD optimizer_of(const torch::nn::Module& net) {
  return torch::optim::SGD(
      net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
}

/// Computes the ranks' result in one process.
std::shared_ptr<BranchNet> train_alone(const Schedule& schedule) {
  const auto net = start_net(schedule.seed);
  auto optimizer = optimizer_of(*net);
  const auto size = static_cast<int64_t>(schedule.steps.size());
  const auto every = schedule.sync_every;
  for (int64_t begin = 0;; begin += every) {
    std::vector<int64_t> live;
    for (int64_t rank = 0; rank < size; ++rank) {
      if (schedule.steps[static_cast<size_t>(rank)] >= begin + every) {
        live.push_back(rank);
      }
    }
    if (live.empty()) {
      return net;
    }
    optimizer.zero_grad(/*set_to_none=*/!schedule.zeroes);
    for (const auto rank : live) {
      for (int64_t step = begin; step < begin + every; ++step) {
        const auto x = inputs_of(schedule.seed, rank, step);
        net->forward(x, schedule.goes_left(rank, step)).sum().backward();
      }
    }
    const auto divisor =
        schedule.by_initial ? size : static_cast<int64_t>(live.size());
    for (auto& parameter : net->parameters()) {
      if (parameter.grad().defined()) {
        parameter.mutable_grad().div_(divisor);
      }
    }
    optimizer.step();
  }
}

/// The difference from the result of one process.
double train_joined(const Schedule& schedule, const ProcessGroup& group) {
  const auto net = start_net(schedule.seed);
  EitherWay<BranchNet> model(net, group, schedule.wrapped, schedule.options());
  auto optimizer = optimizer_of(*net);
  if (schedule.in_backward) {
    model.reducer().step_in_backward(optimizer);
  }
  const auto every = schedule.sync_every;
  const auto rank = group.rank();
  {
    auto join = model.join(
        JoinOptions().divide_by_initial_world_size(schedule.by_initial));
    const auto steps = schedule.steps[static_cast<size_t>(rank)];
    for (int64_t step = 0; step < steps; ++step) {
      if (step % every == 0) {
        optimizer.zero_grad(/*set_to_none=*/!schedule.zeroes);
      }
      const bool last = (step + 1) % every == 0;
      std::optional<Reducer::NoSyncGuard> off;
      if (!last) {
        off.emplace(model.no_sync());
      }
      const auto x = inputs_of(schedule.seed, rank, step);
      model.forward(x, schedule.goes_left(rank, step)).sum().backward();
      if (last && !schedule.in_backward) {
        optimizer.step();
      }
    }
  }
  const auto expected = train_alone(schedule);
  double difference = 0;
  const auto parameters = net->parameters();
  const auto expected_parameters = expected->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    REQUIRE(equal_on_all(group, parameters[i].detach()));
    const auto distance = (parameters[i] - expected_parameters[i]).abs().max();
    difference = std::max(difference, distance.item<double>());
  }
  return difference;
}

void check_schedules(int size, int64_t count) {
  ranks(size, [size, count](ProcessGroup group) {
    for (int64_t seed = 1; seed <= count; ++seed) {
      INFO("schedule " << seed);
      REQUIRE(train_joined(Schedule(seed, size), group) < 1e-12);
    }
  });
}

TEST_CASE("150 random schedules on 3 ranks equal one process") {
  check_schedules(3, 150);
}

TEST_CASE("150 random schedules on 4 ranks equal one process") {
  check_schedules(4, 150);
}

} // namespace ddp::test::join_schedules_test
