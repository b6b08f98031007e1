// Ranks with different numbers of steps.
#include <tests/support/nets.h>
#include <tests/support/ranks.h>
#include <tests/support/shared_folder.h>

#include <ddp/comm_hooks/compress_hook.h>
#include <ddp/comm_hooks/power_sgd_hook.h>
#include <ddp/distributed_data_parallel.h>
#include <ddp/join.h>
#include <ddp/nn/sync_batch_norm.h>

#include <memory>
#include <optional>
#include <random>

using ddp::Join;
using ddp::Joinable;
using ddp::JoinOptions;
using ddp::JoinStep;
using ddp::ProcessGroup;
using ddp::Reducer;
using ddp::test::BranchNet;
using ddp::test::copy_parameters;
using ddp::test::equal_on_all;
using ddp::test::ranks;

namespace {

/// A net with running statistics.
struct NormNet : torch::nn::Module {
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};

  NormNet() {
    first = register_module("first", torch::nn::Linear(4, 6));
    norm = register_module("norm", torch::nn::BatchNorm1d(6));
    last = register_module("last", torch::nn::Linear(6, 2));
  }
  torch::Tensor forward(torch::Tensor x) {
    return last(torch::relu(norm(first(x))));
  }
};

torch::Tensor inputs_of(int64_t seed, int64_t rank, int64_t step) {
  torch::manual_seed((seed * 100 + rank) * 100 + step);
  return torch::randn({3, 4}, torch::kDouble);
}

void clear(torch::optim::Optimizer& optimizer) {
  optimizer.zero_grad();
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

  ddp::ReducerOptions options() const {
    ddp::ReducerOptions result;
    result.share_communicator(true).gradient_as_bucket_view(views);
    if (small_buckets) {
      result.bucket_cap_mb(0.0001);
    }
    return result;
  }

  /// Which branch a rank takes, some in some steps.
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

/// What the ranks compute, in one process.
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

/// A net with a Reducer, attached or in a wrapper.
struct Model {
  Model(
      std::shared_ptr<BranchNet> its_net,
      const ProcessGroup& group,
      const Schedule& schedule)
      : net(std::move(its_net)) {
    if (schedule.wrapped) {
      wrapper.emplace(net, group, schedule.options());
    } else {
      attached.emplace(net, group, schedule.options());
    }
  }
  Reducer& reducer() {
    return wrapper ? (*wrapper)->reducer() : *attached;
  }
  torch::Tensor forward(const torch::Tensor& x, bool go_left) {
    return wrapper ? (*wrapper)->forward(x, go_left) : net->forward(x, go_left);
  }

  std::shared_ptr<BranchNet> net;
  std::optional<ddp::DistributedDataParallel<BranchNet>> wrapper;
  std::optional<Reducer> attached;
};

/// The difference from what one process computes.
double train_joined(const Schedule& schedule, const ProcessGroup& group) {
  Model model(start_net(schedule.seed), group, schedule);
  auto optimizer = optimizer_of(*model.net);
  if (schedule.in_backward) {
    model.reducer().step_in_backward(optimizer);
  }
  const auto every = schedule.sync_every;
  const auto rank = group.rank();
  {
    auto join = model.reducer().join(
        JoinOptions().divide_by_initial_world_size(schedule.by_initial));
    const auto steps = schedule.steps[static_cast<size_t>(rank)];
    for (int64_t step = 0; step < steps; ++step) {
      if (step % every == 0) {
        optimizer.zero_grad(/*set_to_none=*/!schedule.zeroes);
      }
      const bool last = (step + 1) % every == 0;
      std::optional<Reducer::NoSyncGuard> off;
      if (!last) {
        off.emplace(model.reducer().no_sync());
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
  const auto parameters = model.net->parameters();
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

torch::Tensor loss_of(torch::nn::Linear& net, double value) {
  return net->forward(torch::full({1, 1}, value)).sum();
}

} // namespace

TEST_CASE("150 random schedules on 3 ranks equal one process") {
  check_schedules(3, 150);
}

TEST_CASE("150 random schedules on 4 ranks equal one process") {
  check_schedules(4, 150);
}

TEST_CASE("a join divides by the ranks with inputs if asked to") {
  ranks(3, [](ProcessGroup group) {
    for (const bool by_initial : {true, false}) {
      torch::nn::Linear net(1, 1);
      Reducer reducer(net, group);
      const auto rank = group.rank();
      auto join =
          reducer.join(JoinOptions().divide_by_initial_world_size(by_initial));
      for (int64_t step = 0; step <= rank; ++step) {
        net->zero_grad();
        loss_of(net, 3).backward();
        const auto live = static_cast<double>(3 - step);
        const auto expected = by_initial ? 3 * live / 3 : 3;
        REQUIRE(net->weight.grad().item<double>() == Approx(expected));
      }
    }
  });
}

TEST_CASE("a join ends with the parameters and buffers of the last rank") {
  ranks(4, [](ProcessGroup group) {
    for (const bool wrapped : {true, false}) {
      auto net = std::make_shared<NormNet>();
      std::optional<ddp::DistributedDataParallel<NormNet>> wrapper;
      std::optional<Reducer> reducer;
      if (wrapped) {
        wrapper.emplace(net, group);
      } else {
        reducer.emplace(net, group);
      }
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      torch::Tensor own;
      {
        auto join = wrapped ? (*wrapper)->join() : reducer->join();
        // Ranks 1 and 2 last as long as each other: 2 is asked.
        const std::vector<int64_t> steps = {1, 4, 4, 0};
        for (int64_t i = 0; i < steps[static_cast<size_t>(group.rank())]; ++i) {
          clear(optimizer);
          torch::manual_seed(10 * i + group.rank());
          const auto x = torch::randn({5, 4});
          (wrapped ? (*wrapper)->forward(x) : net->forward(x)).sum().backward();
          optimizer.step();
        }
        own = net->norm->running_mean.clone();
      }
      for (const auto& tensor : net->parameters()) {
        REQUIRE(equal_on_all(group, tensor.detach()));
      }
      for (const auto& tensor : net->buffers()) {
        REQUIRE(equal_on_all(group, tensor));
      }
      const auto all = group.all_gather(own);
      REQUIRE(net->norm->running_mean.equal(all[2]));
      // The next loop works on.
      clear(optimizer);
      const auto x = torch::randn({5, 4});
      (wrapped ? (*wrapper)->forward(x) : net->forward(x)).sum().backward();
      REQUIRE(equal_on_all(group, net->last->weight.grad()));
    }
  });
}

TEST_CASE("a forward after a join agrees on who sends buffers") {
  ranks(3, [](ProcessGroup group) {
    auto net = std::make_shared<NormNet>();
    ddp::DistributedDataParallel<NormNet> model(net, group);
    const auto x = torch::randn({5, 4});
    {
      const torch::NoGradGuard no_grad;
      model->forward(x); // nobody sends before the next one
    }
    {
      auto join = model->join();
      if (group.rank() != 1) { // which keeps what it knew
        model->forward(x).sum().backward();
      }
    }
    net->norm->running_mean.fill_(group.rank());
    model->forward(x).sum().backward();
    REQUIRE(equal_on_all(group, net->last->weight.grad()));
  });
}

TEST_CASE("early termination is thrown on all ranks, after the same steps") {
  ranks(3, [](ProcessGroup group) {
    torch::nn::Linear net(1, 1);
    Reducer reducer(net, group);
    int64_t steps = 0;
    std::string error;
    try {
      auto join = reducer.join(JoinOptions().throw_on_early_termination(true));
      for (; steps < 2 + group.rank(); ++steps) {
        loss_of(net, 1).backward();
      }
    } catch (const ddp::EarlyTermination& thrown) {
      error = thrown.what_without_backtrace();
    }
    REQUIRE(steps == 2);
    REQUIRE(
        error ==
        (group.rank() == 0
             ? "Rank 0 exhausted all inputs."
             : "Detected at least one rank that exhausted inputs. Throwing "
               "across all ranks."));
    net->zero_grad();
    loss_of(net, group.rank()).backward(); // is still of use
    REQUIRE(net->weight.grad().item<float>() == 1);
  });
}

TEST_CASE("the wrapper throws before a forward that communicates itself") {
  ranks(3, [](ProcessGroup group) {
    torch::nn::Sequential net(
        torch::nn::Linear(4, 6),
        ddp::SyncBatchNorm1d(
            torch::nn::BatchNormOptions(6), group.duplicate()));
    ddp::DistributedDataParallel<torch::nn::SequentialImpl> model(
        net.ptr(), group, ddp::ReducerOptions().broadcast_buffers(false));
    int64_t steps = 0;
    const auto train = [&] {
      auto join = model->join(JoinOptions().throw_on_early_termination(true));
      for (; steps < 4 - group.rank(); ++steps) {
        model->forward(torch::randn({5, 4})).sum().backward();
      }
    };
    REQUIRE_THROWS_AS(train(), ddp::EarlyTermination);
    REQUIRE(steps == 2);
  });
}

TEST_CASE("communication hooks take part in a join") {
  for (const bool power_sgd : {false, true}) {
    ranks(3, [power_sgd](ProcessGroup group) {
      std::shared_ptr<ddp::CommHook> hook = ddp::fp16_compress_hook();
      if (power_sgd) {
        hook = std::make_shared<ddp::PowerSGDHook>(
            ddp::PowerSGDOptions().start_iteration(2));
      }
      torch::manual_seed(1);
      torch::nn::Linear net(16, 16);
      Reducer reducer(net, group, ddp::ReducerOptions().comm_hook(hook));
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      reducer.step_in_backward(optimizer);
      auto join = reducer.join();
      for (int64_t step = 0; step < 3 + group.rank(); ++step) {
        optimizer.zero_grad();
        net->forward(torch::ones({1, 16})).sum().backward();
        if (!power_sgd) { // a hook's divisor is its own
          const auto live = static_cast<float>(step < 3 ? 3 : 5 - step);
          REQUIRE(net->bias.grad().allclose(
              torch::full({16}, live / 3), 1e-3, 1e-3));
        }
      }
      const auto own = net->weight.detach().clone();
      join.finish();
      REQUIRE(equal_on_all(group, net->weight.detach()));
      if (group.rank() == 2) { // which went on longest
        REQUIRE(own.equal(net->weight));
      }
    });
  }
}

TEST_CASE("nobody throws where all inputs end in the same step") {
  ranks(3, [](ProcessGroup group) {
    torch::nn::Linear net(1, 1);
    Reducer reducer(net, group);
    auto join = reducer.join(JoinOptions().throw_on_early_termination(true));
    loss_of(net, 1).backward();
  });
}

TEST_CASE("a join that is off costs and does nothing") {
  ranks(3, [](ProcessGroup group) {
    torch::nn::Linear net(1, 1);
    Reducer reducer(net, group);
    auto join = reducer.join(JoinOptions().enable(false));
    auto second = reducer.join(JoinOptions().enable(false));
    loss_of(net, group.rank()).backward();
    REQUIRE(net->weight.grad().item<float>() == 1);
  });
}

TEST_CASE("an exception leaves a join as it is") {
  ranks(3, [](ProcessGroup group) {
    torch::nn::Linear net(1, 1);
    Reducer reducer(net, group);
    try {
      auto join = reducer.join();
      loss_of(net, 1).backward();
      throw std::invalid_argument("the program's own");
    } catch (const std::invalid_argument& error) {
      REQUIRE(std::string(error.what()) == "the program's own");
    }
    auto join = reducer.join(); // was left
    loss_of(net, 1).backward();
  });
}

namespace {

/// A program's own collective: the number of samples of all ranks.
class SampleCount : public Joinable {
 public:
  explicit SampleCount(ProcessGroup group) : group_(std::move(group)) {}

  void add(int64_t samples) {
    announce();
    sum(samples);
  }
  int64_t total = 0;
  int64_t root = -1;

 protected:
  void shadow(const JoinStep& step) override {
    REQUIRE(step.live < group_.size());
    sum(0);
  }
  void end_join(int64_t its_root) override {
    root = its_root;
  }

 private:
  void sum(int64_t samples) {
    auto count = torch::tensor({samples});
    group_.all_reduce(count);
    total += count.item<int64_t>();
  }
  ProcessGroup group_;
};

} // namespace

TEST_CASE("a program's own collectives take part in a join") {
  ranks(4, [](ProcessGroup group) {
    torch::nn::Linear net(1, 1);
    Reducer reducer(net, group);
    SampleCount count(group);
    {
      Join join(group, {reducer.joinable(), count});
      for (int64_t i = 0; i < 3 - group.rank() % 3; ++i) {
        loss_of(net, 1).backward();
        if (i % 2 == 0) { // not in every step
          count.add(10 + i);
        }
      }
    }
    // Ranks 0 and 3 have 3 steps, rank 1 has 2, rank 2 has 1.
    REQUIRE(count.total == 4 * 10 + 2 * 12);
    REQUIRE(count.root == 3);
    REQUIRE(equal_on_all(group, net->weight.detach()));
  });
}

TEST_CASE("Reducers that share a backward share a join") {
  ranks(3, [](ProcessGroup group) {
    torch::manual_seed(1);
    torch::nn::Linear lower(4, 4);
    torch::nn::Linear upper(4, 4);
    Reducer first(lower, group);
    Reducer second(upper, group);
    Join join(group, {first.joinable(), second.joinable()});
    for (int64_t i = 0; i < 1 + group.rank(); ++i) {
      lower->zero_grad();
      upper->zero_grad();
      // The lower net is used on both sides of the upper one.
      const auto x = torch::ones({1, 4});
      lower(upper(lower(x))).sum().backward();
    }
    join.finish();
    for (const auto& grad : {lower->weight.grad(), upper->weight.grad()}) {
      REQUIRE(equal_on_all(group, grad));
    }
    REQUIRE(group.rank() + lower->weight.grad().abs().sum().item<float>() > 0);
  });
}

TEST_CASE("measured buckets and timelines go on without a rank's inputs") {
  const ddp::test::SharedFolder folder;
  ranks(3, [path = folder.path](ProcessGroup group) {
    for (const bool measured : {true, false}) {
      torch::manual_seed(1);
      torch::nn::Linear net(16, 16);
      ddp::ReducerOptions options;
      if (measured) {
        options.bucket_layout(ddp::BucketLayout::kMeasured);
      } else {
        options.timeline_folder(path).timeline_steps("2-4");
      }
      Reducer reducer(net, group, options);
      auto join = reducer.join();
      for (int64_t step = 0; step < 1 + 10 * group.rank(); ++step) {
        net->zero_grad();
        net->forward(torch::ones({1, 16})).sum().backward();
      }
      join.finish();
      REQUIRE(equal_on_all(group, net->weight.grad()));
    }
  });
}

TEST_CASE("ranks that announce different things are told") {
  ranks(3, [](ProcessGroup group) {
    torch::nn::Linear net(1, 1);
    Reducer reducer(net, group);
    SampleCount count(group);
    std::string error;
    try {
      Join join(group, {reducer.joinable(), count});
      if (group.rank() == 1) {
        count.add(1);
      } else if (group.rank() == 0) {
        loss_of(net, 1).backward();
      }
    } catch (const c10::Error& thrown) {
      error = thrown.what_without_backtrace();
    }
    REQUIRE_THAT(error, Catch::Contains("do different things"));
    REQUIRE_THAT(error, Catch::Contains("of joinable 0"));
    REQUIRE_THAT(error, Catch::Contains("call 0 of joinable 1"));
  });
}

TEST_CASE("what a join cannot work with is refused") {
  ranks(3, [](ProcessGroup group) {
    torch::nn::Linear net(1, 1);
    Reducer reducer(
        net, group, ddp::ReducerOptions().skip_all_reduce_unused_params(true));
    REQUIRE_THROWS_WITH(
        reducer.join(), Catch::Contains("skip_all_reduce_unused_params"));
    auto off = reducer.join(JoinOptions().enable(false));
    torch::nn::Linear other(1, 1);
    Reducer second(other, group);
    auto join = second.join();
    REQUIRE_THROWS_WITH(second.join(), Catch::Contains("in another Join"));
  });
}

TEST_CASE("sparse gradients of ranks without inputs are empty") {
  ranks(3, [](ProcessGroup group) {
    torch::manual_seed(1);
    torch::nn::Embedding words(torch::nn::EmbeddingOptions(5, 2).sparse(true));
    Reducer reducer(words, group);
    auto join = reducer.join();
    for (int64_t i = 0; i < 1 + group.rank(); ++i) {
      words->zero_grad();
      words->forward(torch::tensor({i})).sum().backward();
      const auto grad = words->weight.grad().to_dense();
      const auto live = static_cast<float>(3 - i);
      REQUIRE(grad.allclose(
          torch::zeros({5, 2}).index_fill(0, torch::tensor({i}), live / 3)));
    }
  });
}

TEST_CASE("a group of one joins nobody") {
  torch::nn::Linear net(1, 1);
  Reducer reducer(net, ProcessGroup());
  auto join = reducer.join();
  loss_of(net, 1).backward();
}
