#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/distributed_data_parallel.h>
#include <ddp/process_group/process_group_impl.h>

namespace ddp::test::distributed_data_parallel_test {

/// Each forward keeps a copy of the buffer, and then changes it differently per
/// rank.
struct DriftNet : torch::nn::Module {
  torch::Tensor weight = register_parameter("weight", torch::ones({2}));
  torch::Tensor drift = register_buffer("drift", torch::zeros({2}));
  torch::Tensor met;
  int64_t rank;
  bool fails = false;

  explicit DriftNet(int64_t own_rank) : rank(own_rank) {}
  torch::Tensor forward(const torch::Tensor& x) {
    met = drift.clone();
    drift.add_(rank + 1);
    if (fails) {
      throw std::out_of_range("forward of the net");
    }
    return x * weight;
  }
};

/// Kinds of forward.
enum Kind { kSync, kNoSync, kNoGrad };

/// Takes all kinds of arguments, and returns all kinds of results.
struct EchoNet : torch::nn::Module {
  torch::Tensor weight;
  std::vector<torch::Tensor> kept;

  explicit EchoNet(torch::Device device = torch::kCPU) {
    weight = register_parameter("weight", torch::ones({2}, device));
  }
  void forward(torch::Tensor& x) {
    x = x * weight;
  }
  std::vector<torch::Tensor>& forward(std::vector<torch::Tensor> list) {
    kept = std::move(list);
    return kept;
  }
  const torch::Tensor& forward(const torch::Tensor& /*x*/, int /*tag*/) {
    return weight;
  }
  std::vector<torch::Tensor>&& forward() {
    return std::move(kept);
  }
  std::unique_ptr<int> forward(std::unique_ptr<int> pointer) {
    return pointer;
  }
};

torch::Tensor mine(const ProcessGroup& group) {
  torch::manual_seed(group.rank());
  return torch::randn({8, 3});
}

/// Runs a forward of this kind. Returns whether all ranks' nets saw the same
/// buffer.
bool meets_equal(
    DistributedDataParallel<DriftNet>& model,
    const ProcessGroup& group,
    Kind kind) {
  {
    const torch::AutoGradMode grad_mode(kind != kNoGrad);
    auto guard = std::make_optional(model->no_sync());
    if (kind != kNoSync) {
      guard.reset();
    }
    const auto output = model->forward(torch::ones({2}));
    if (kind == kSync) {
      output.sum().backward();
    }
  }
  return equal_on_all(group, model->module()->met);
}

/// The results of a sequence of forwards: each kind twice, between others.
std::vector<bool> meetings(const ProcessGroup& group, BufferSync buffer_sync) {
  DistributedDataParallel<DriftNet> model(
      std::make_shared<DriftNet>(group.rank()),
      group,
      ReducerOptions().buffer_sync(buffer_sync));
  std::vector<bool> equal;
  for (const auto kind :
       {kSync,
        kSync,
        kNoSync,
        kNoSync,
        kSync,
        kSync,
        kNoGrad,
        kNoGrad,
        kSync,
        kSync}) {
    equal.push_back(meets_equal(model, group, kind));
  }
  return equal;
}

TEST_CASE("names begin with module.") {
  const ProcessGroup alone;
  DistributedDataParallel<NormNet> model(
      std::make_shared<NormNet>(3, 4, 2), alone);
  REQUIRE(model->named_parameters().contains("module.first.weight"));
  REQUIRE(model->named_buffers().contains("module.norm.running_mean"));
  REQUIRE(model->module()->named_parameters().contains("first.weight"));
}

RANKS_TEST("buffers are broadcast before the forwards that Python chooses") {
  REQUIRE(ReducerOptions().buffer_sync() == BufferSync::kPython);
  // As measured with torch.nn.parallel.DistributedDataParallel.
  REQUIRE(
      meetings(group, BufferSync::kPython) ==
      std::vector<bool>{
          true, true, true, false, false, true, true, false, false, true});
  // Before forwards that a backward can follow.
  REQUIRE(
      meetings(group, BufferSync::kTrainingForward) ==
      std::vector<bool>{
          true, true, false, false, true, true, false, false, true, true});
}

RANKS_TEST("with kTrainingForward ranks may evaluate on their own") {
  const auto net = std::make_shared<NormNet>(3, 4, 2);
  DistributedDataParallel<NormNet> model(
      net, group, ReducerOptions().buffer_sync(BufferSync::kTrainingForward));
  model->forward(mine(group)).sum().backward();
  if (group.rank() == 0) { // the others do not take part: it must not wait
    torch::NoGradGuard no_grad;
    model->forward(mine(group));
  }
  if (group.rank() == 1) {
    const auto guard = model->no_sync();
    model->forward(mine(group));
  }
  group.barrier();
}

RANKS_TEST("by default they may from the second forward without gradients on") {
  const auto net = std::make_shared<NormNet>(3, 4, 2);
  DistributedDataParallel<NormNet> model(net, group);
  model->forward(mine(group)).sum().backward();
  torch::NoGradGuard no_grad;
  model->forward(mine(group));
  for (int64_t i = 0; i < group.rank(); ++i) {
    model->forward(mine(group));
  }
  group.barrier();
}

RANKS_TEST("a buffer that came after construction is broadcast too") {
  auto net = std::make_shared<DriftNet>(group.rank());
  DistributedDataParallel<DriftNet> model(net, group);
  const auto late =
      net->register_buffer("late", torch::full({2}, group.rank() + 1.0));
  model->forward(torch::ones({2}));
  REQUIRE(late.eq(1).all().item<bool>());
}

RANKS_TEST("an exception of the net passes through, and ranks stay in step") {
  auto net = std::make_shared<DriftNet>(group.rank());
  DistributedDataParallel<DriftNet> model(net, group);
  REQUIRE(meets_equal(model, group, kSync));
  {
    const auto guard = model->no_sync();
    net->fails = group.rank() == 1;
    if (net->fails) {
      REQUIRE_THROWS_AS(model->forward(torch::ones({2})), std::out_of_range);
    } else {
      model->forward(torch::ones({2}));
    }
    net->fails = false;
  }
  // Had rank 1 forgotten that forward, it would wait for a broadcast here.
  REQUIRE(!meets_equal(model, group, kNoGrad));
  REQUIRE(!meets_equal(model, group, kSync));
  REQUIRE(meets_equal(model, group, kSync));
  REQUIRE(equal_on_all(group, net->weight.grad()));
}

TEST_CASE("arguments and results keep their types and identities") {
  DistributedDataParallel<EchoNet> model(
      std::make_shared<EchoNet>(), ProcessGroup());
  auto& net = *model->module();
  auto x = torch::full({2}, 3.0);
  static_assert(std::is_void_v<decltype(model->forward(x))>);
  model->forward(x); // writes to its argument
  REQUIRE(x.requires_grad());
  std::vector<torch::Tensor> list{torch::ones({2})};
  static_assert(std::is_same_v<
                decltype(model->forward(list)),
                std::vector<torch::Tensor>&>);
  REQUIRE(&model->forward(list) == &net.kept);
  REQUIRE(net.kept[0].is_same(list[0]));
  static_assert(
      std::is_same_v<decltype(model->forward(x, 1)), const torch::Tensor&>);
  REQUIRE(&model->forward(x, 1) == &net.weight);
  static_assert(
      std::is_same_v<decltype(model->forward()), std::vector<torch::Tensor>&&>);
  REQUIRE(
      &static_cast<const std::vector<torch::Tensor>&>(model->forward()) ==
      &net.kept);
  auto pointer = std::make_unique<int>(3);
  const auto* address = pointer.get();
  REQUIRE(model->forward(std::move(pointer)).get() == address);
}

TEST_CASE("forward moves its arguments to the device of group and module") {
  auto impl = std::make_shared<detail::ProcessGroupImpl>();
  impl->device = torch::kMeta;
  const auto alone = detail::ProcessGroupImpl::group_of(impl);
  DistributedDataParallel<EchoNet> model(
      std::make_shared<EchoNet>(torch::kMeta), alone);
  const std::vector<torch::Tensor> list{torch::ones({2})};
  REQUIRE(model->forward(list)[0].device() == torch::kMeta);
  REQUIRE(list[0].device() == torch::kCPU);
  // If the module is elsewhere, or the option is off, arguments stay.
  DistributedDataParallel<EchoNet> elsewhere(
      std::make_shared<EchoNet>(torch::kCPU), alone);
  REQUIRE(elsewhere->forward(list)[0].is_same(list[0]));
  DistributedDataParallel<EchoNet> off(
      std::make_shared<EchoNet>(torch::kMeta),
      alone,
      ReducerOptions().move_inputs(false));
  REQUIRE_THROWS_AS(off->forward(list), c10::ValueError);
}

RANKS_TEST("an argument on another device than the module is reported first") {
  auto net = std::make_shared<DriftNet>(group.rank());
  DistributedDataParallel<DriftNet> model(
      net, group, ReducerOptions().move_inputs(false));
  model->forward(torch::ones({2}));
  net->met = torch::Tensor();
  if (group.rank() == 2) {
    REQUIRE_THROWS_WITH(
        model->forward(torch::ones({2}, torch::kMeta)),
        Has("rank 2: argument 0 of forward", "is on meta", "weight"));
    REQUIRE(!net->met.defined()); // the net has not run
  } else {
    model->forward(torch::ones({2}));
  }
  REQUIRE(meets_equal(model, group, kSync)); // ranks are still in step
}

RANKS_TEST("two forwards with batch-norm may precede one backward") {
  const auto net = std::make_shared<NormNet>(3, 4, 2);
  DistributedDataParallel<NormNet> model(net, group);
  for (int step = 0; step < 2; ++step) {
    const auto a = model->forward(mine(group));
    const auto b = model->forward(mine(group) + 1);
    (a.pow(2).sum() + b.pow(3).sum()).backward();
    REQUIRE(equal_on_all(group, net->first->weight.grad()));
  }
}

RANKS_TEST("the wrapper leaves ignored buffers to each rank") {
  auto net = std::make_shared<DriftNet>(group.rank());
  const auto mine =
      net->register_buffer("mine", torch::full({2}, group.rank()));
  const auto ours =
      net->register_buffer("ours", torch::full({2}, group.rank()));
  DistributedDataParallel<DriftNet> model(
      net, group, ReducerOptions().parameters_to_ignore({"mine"}));
  for (int step = 0; step < 3; ++step) {
    const torch::NoGradGuard no_grad;
    ours.fill_(group.rank());
    const torch::AutoGradMode grad(true);
    model->forward(torch::ones({2})).sum().backward();
    REQUIRE(mine.eq(group.rank()).all().item<bool>());
    REQUIRE(ours.eq(0).all().item<bool>());
  }
}

RANKS_TEST("broadcast_buffers(false) leaves buffers to each rank") {
  const auto net = std::make_shared<NormNet>(3, 4, 2);
  DistributedDataParallel<NormNet> model(
      net, group, ReducerOptions().broadcast_buffers(false));
  model->forward(mine(group));
  net->eval();
  model->forward(mine(group));
  REQUIRE(!equal_on_all(group, net->norm->running_mean));
}

} // namespace ddp::test::distributed_data_parallel_test
