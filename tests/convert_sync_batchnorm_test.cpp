#include <tests/support/batch_norm.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/ddp.h>

namespace ddp::test::convert_sync_batchnorm_test {

using Names = std::vector<std::string>;
using namespace torch::nn;

struct ResidualImpl : LayeredNet {
  BatchNorm2d norm = add("norm", BatchNorm2d(4));
  Conv2d conv = add("conv", Conv2d(Conv2dOptions(4, 4, 3).padding(1)));

  torch::Tensor forward(torch::Tensor x) {
    return x + conv(torch::relu(norm(x)));
  }
};
TORCH_MODULE(Residual);

/// A class of the program.
struct NamedNormImpl : BatchNorm1dImpl {
  using BatchNorm1dImpl::BatchNorm1dImpl;
};
TORCH_MODULE(NamedNorm);

/// Batch-norms in members, in containers, and without tensors.
struct Net : Module {
  Conv2d conv{nullptr};
  BatchNorm2d first{nullptr};
  Sequential body{nullptr};
  BatchNorm1d bare{nullptr};
  NamedNorm named{nullptr};
  BatchNorm1d untracked{nullptr};
  InstanceNorm1d instance{nullptr};
  Linear last{nullptr};

  Net() {
    torch::manual_seed(3);
    conv = register_module("conv", Conv2d(2, 4, 3));
    first = register_module("first", BatchNorm2d(4));
    body = register_module(
        "body", Sequential(Residual(), BatchNorm2d(4), ReLU(), Residual()));
    bare = register_module(
        "bare",
        BatchNorm1d(
            BatchNorm1dOptions(16).affine(false).track_running_stats(false)));
    named = register_module(
        "named", NamedNorm(BatchNormOptions(16).momentum(std::nullopt)));
    untracked = register_module(
        "untracked",
        BatchNorm1d(BatchNorm1dOptions(16).track_running_stats(false)));
    instance = register_module(
        "instance",
        InstanceNorm1d(InstanceNorm1dOptions(4).track_running_stats(true)));
    last = register_module("last", Linear(16, 2));
    to(torch::kDouble);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = body->forward(first(conv(x))).flatten(1);
    return last(untracked(torch::tanh(named(torch::tanh(bare(x))))));
  }
};

const Names kNames{
    "first",
    "body.0.norm",
    "body.1",
    "body.3.norm",
    "bare",
    "named",
    "untracked"};

Names keys(const Module& net) {
  Names result;
  for (const auto& item : net.named_parameters()) {
    result.push_back(item.key());
  }
  for (const auto& item : net.named_buffers()) {
    result.push_back(item.key());
  }
  return result;
}

torch::Tensor loss_of(const torch::Tensor& output) {
  return (output.square() + output.exp()).sum();
}

/// Trains `net` on this rank's rows and `alone` on all rows.
void compare(const ProcessGroup& group, Net& net, Net& alone) {
  const auto rows = uneven_rows(group);
  for (int64_t step = 0; step < 3; ++step) {
    const auto whole = whole_batch(step, sum_of(rows), {2, 4, 4});
    net.zero_grad();
    alone.zero_grad();
    loss_of(net.forward(part_of(whole, rows, group))).backward();
    loss_of(alone.forward(whole)).backward();
    require_trained_alike(group, net, alone, 1e-8);
  }
}

RANKS_TEST(
    "a converted net computes as one process with the whole batch",
    {3, 4}) {
  auto net = std::make_shared<Net>();
  Net alone;
  const auto before = keys(*net);
  REQUIRE(convert_sync_batchnorm(net, group) == kNames);
  REQUIRE(keys(*net) == before);
  Reducer reducer(net, group);
  compare(group, *net, alone);
}

RANKS_TEST("a net stays converted where it is moved and loaded") {
  auto net = std::make_shared<Net>();
  convert_sync_batchnorm(net, group);
  Net alone;
  std::stringstream file;
  torch::save(net, file);
  torch::load(net, file);
  net->to(torch::kFloat);
  net->to(torch::kDouble);
  net->eval();
  net->train();
  Reducer reducer(net, group);
  compare(group, *net, alone);
}

RANKS_TEST("a converted net evaluates without the other ranks") {
  auto net = std::make_shared<Net>();
  Net alone;
  convert_sync_batchnorm(net, group);
  net->eval();
  alone.eval();
  if (group.rank() == 1) {
    const auto batch = whole_batch(1, 4, {2, 4, 4});
    require_close(net->forward(batch), alone.forward(batch));
  }
}

RANKS_TEST("statistics of a converted net in inference mode") {
  BatchNorm1d norm(BatchNorm1dOptions(1).momentum(1));
  convert_sync_batchnorm(norm, group);
  const c10::InferenceMode guard;
  norm(torch::full({2, 1}, 1. * group.rank()));
  REQUIRE(norm->running_mean.item<float>() == 1);
}

RANKS_TEST("each rank may need one converted head, but runs all of them") {
  Sequential heads(BatchNorm1d(2), BatchNorm1d(2));
  heads->to(torch::kDouble);
  convert_sync_batchnorm(heads, group);
  const size_t needed = group.rank() % 2;
  const auto batch =
      torch::full({2, 2}, double(1 << group.rank()), torch::kDouble)
          .requires_grad_();
  const auto run = [&](size_t head, const torch::Tensor& input) {
    return heads[head]->as<BatchNorm1d>()->forward(input);
  };
  REQUIRE_THROWS_WITH(
      run(needed, batch), Has("rank 1 runs layer 1, but rank 0 runs layer 0"));
  auto loss = torch::zeros({}, torch::kDouble);
  for (const size_t head : {0, 1}) {
    const bool all = head == needed;
    const auto output = run(head, all ? batch : batch.narrow(0, 0, 0));
    loss = loss + output.sum() * (all ? 1 : 0);
  }
  loss.backward();
  const auto mean_of = [&](size_t head) {
    return heads[head]->as<BatchNorm1d>()->running_mean;
  };
  // A tenth of the means: of ranks 0 and 2, and of rank 1.
  require_close(mean_of(0), torch::full({2}, 0.25, torch::kDouble));
  require_close(mean_of(1), torch::full({2}, 0.2, torch::kDouble));
}

TEST_CASE("no net is refused in words") {
  CHECK_THROWS_AS(
      convert_sync_batchnorm(
          std::shared_ptr<torch::nn::Module>(), ProcessGroup()),
      c10::ValueError);
}

RANKS_TEST("what is not converted, or not any more, is LibTorch's own") {
  auto net = std::make_shared<Net>();
  Net other, alone;
  convert_sync_batchnorm(net, group);
  const auto batch = whole_batch(group.rank(), 4, {2, 4, 4});
  require_close(other.forward(batch), alone.forward(batch));
  REQUIRE(convert_sync_batchnorm(net, ProcessGroup()) == kNames);
  require_close(net->forward(batch), alone.forward(batch));
}

TEST_CASE("batch-norms of another class are named in one warning") {
  struct Frozen : Module {
    Frozen() {
      register_buffer("running_var", torch::ones({1}));
    }
  };
  auto net = std::make_shared<Net>();
  for (const std::string number : {"1", "2", "3", "4", "5"}) {
    net->register_module("frozen" + number, std::make_shared<Frozen>());
  }
  const auto words = warnings_of(
      [&] { CHECK(convert_sync_batchnorm(net, ProcessGroup()) == kNames); });
  REQUIRE(words.size() == 1);
  CHECK_THAT(words[0], Has("frozen1 (", "frozen3 (", ") and 2 more"));
  CHECK_THAT(words[0], !Has("instance"));
}

} // namespace ddp::test::convert_sync_batchnorm_test
