#include <ddp/ddp.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/reducer.h>
#include <tests/support/failures.h>
#include <tests/support/gpus.h>
#include <tests/support/twins.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace ddp::test::gpu_test {

void backward(UnevenNet& net, const at::Tensor& input) {
  net.forward(input.to(net.parameters().front().device()))
      .pow(2)
      .mean()
      .backward();
}

GPU_TEST("collectives over NCCL") {
  const auto size = group.size();
  REQUIRE(group.backend() == "nccl");
  REQUIRE(group.device().is_cuda());
  auto tensor = torch::ones({1000}, group.device());
  group.all_reduce(tensor);
  REQUIRE(tensor.eq(size).all().item<bool>());
  group.all_reduce(tensor, ReduceOp::kMean);
  REQUIRE(tensor.eq(size).all().item<bool>());
  auto on_cpu = torch::ones({3}); // CPU tensors go over gloo
  group.all_reduce(on_cpu);
  REQUIRE(on_cpu.eq(size).all().item<bool>());
  REQUIRE(group.all_gather(tensor).size() == static_cast<size_t>(size));
  const auto part = group.split(group.rank() == 0 ? 0 : 1, 0);
  auto ranks = torch::full({1}, group.rank(), group.device());
  part.all_reduce(ranks);
  REQUIRE(ranks.item<int64_t>() == (group.rank() == 0 ? 0 : 3));
  group.barrier();
}

GPU_TEST("the same net trains on GPUs as on the CPU") {
  auto net = net_on_gpu(group);
  auto reference = std::make_shared<UnevenNet>();
  copy_parameters(*net, *reference);
  DistributedDataParallel<UnevenNet> model(net, group);
  Reducer reducer(reference, group);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  torch::optim::SGD reference_optimizer(reference->parameters(), 0.1);
  for (int step = 0; step < 5; ++step) {
    const auto input = input_of(group, step);
    optimizer.zero_grad();
    model->forward(input.to(group.device())).pow(2).mean().backward();
    optimizer.step();
    reference_optimizer.zero_grad();
    backward(*reference, input);
    reference_optimizer.step();
  }
  for (size_t i = 0; i < net->parameters().size(); ++i) {
    REQUIRE(torch::allclose(
        net->parameters()[i].cpu(), reference->parameters()[i], 1e-3, 1e-4));
  }
  verify_same_parameters(*net, group);
}

GPU_TEST("over two GPUs gradients are the mean, bit for bit", 2) {
  // A sum of two is the same in any order.
  for (const bool keep : {false, true}) {
    for (const double cap : {25.0, 0.0001}) {
      const Twins<UnevenNet> twins(group, ReducerOptions().bucket_cap_mb(cap));
      for (int step = 0; step < 4; ++step) {
        const auto input = input_of(group, step).to(group.device());
        twins.net->zero_grad(/*set_to_none=*/!keep);
        reset_gradients(*twins.local);
        twins.backward(
            [&](auto& net) { return net.forward(input).pow(2).mean(); });
        INFO("step " << step << ", cap " << cap);
        twins.check(0, 0);
      }
    }
  }
}

GPU_TEST("large gradients on GPUs are the mean, bit for bit", 2) {
  const auto options = torch::TensorOptions(group.device());
  auto large = torch::zeros({1500, 800}, options).requires_grad_();
  auto small = torch::zeros({7}, options).requires_grad_();
  const Reducer reducer(std::vector<at::Tensor>{large, small}, group);
  for (int step = 0; step < 4; ++step) {
    torch::manual_seed(10 * step + group.rank());
    const auto factors = torch::randn_like(large);
    large.mutable_grad().reset();
    small.mutable_grad().reset();
    ((large * factors).sum() + small.sum() * (group.rank() + 1)).backward();
    auto mean = factors / 2;
    group.all_reduce(mean);
    INFO("step " << step);
    REQUIRE(torch::equal(large.grad(), mean));
    REQUIRE(torch::equal(small.grad(), torch::full_like(small, 1.5)));
  }
}

GPU_TEST("sparse gradients on GPUs are averaged") {
  torch::manual_seed(1);
  torch::nn::Embedding table(torch::nn::EmbeddingOptions(10, 4).sparse(true));
  table->to(group.device());
  Reducer reducer(table.ptr(), group);
  const auto rows = torch::tensor({group.rank(), int64_t(9)}, torch::kLong);
  table->forward(rows.to(group.device())).sum().backward();
  const auto grad = table->weight.grad().to_dense().cpu();
  REQUIRE(nearly_equal(grad[9], torch::ones({4})));
  REQUIRE(nearly_equal(grad[1], torch::full({4}, 1.0 / 3)));
  REQUIRE(nearly_equal(grad[5], torch::zeros({4})));
}

GPU_TEST("the checks of each step work on GPUs") {
  {
    auto net = net_on_gpu(group);
    Reducer reducer(net, group, ReducerOptions().check_finite(true));
    backward(*net, input_of(group, 0));
    auto input = input_of(group, 1);
    if (group.rank() == 2) {
      input[0][0] = std::numeric_limits<float>::quiet_NaN();
    }
    REQUIRE_THROWS_WITH(backward(*net, input), Has("not finite on rank 2"));
  }
  auto net = net_on_gpu(group);
  Reducer reducer(net, group, ReducerOptions().check_divergence_every(1));
  backward(*net, input_of(group, 0));
  if (group.rank() == 1) {
    const torch::NoGradGuard no_grad;
    net->parameters()[0].add_(1);
  }
  REQUIRE_THROWS_WITH(backward(*net, input_of(group, 1)), Has("differ"));
}

TEST_CASE("a group over NCCL ends without a word") {
  const auto outcomes = gpu_ranks(3, [](ProcessGroup group) {
    auto net = net_on_gpu(group);
    Reducer reducer(net, group);
    backward(*net, input_of(group, 0)); // still under way at the end
    // Otherwise a model could not be on another device.
    REQUIRE(!group.c10d()->getBoundDeviceId());
  });
  for (const auto& outcome : outcomes) {
    REQUIRE_THAT(
        outcome.output, !Has("destroy_process_group") && !Has("ddp: "));
  }
}

TEST_CASE("a model on two GPUs of each rank is averaged over NCCL") {
  if (count_gpus() < 2) {
    skip("it needs two GPUs");
  }
  gpu_ranks(2, [](ProcessGroup group) {
    const auto first = group.device();
    const c10::Device second(
        c10::kCUDA, static_cast<c10::DeviceIndex>(1 - first.index()));
    torch::manual_seed(group.rank()); // construction must set rank 0's values
    torch::nn::Sequential net(
        torch::nn::Linear(4, 30), torch::nn::Linear(30, 3));
    net[0]->to(first);
    net[1]->to(second);
    Reducer reducer(net, group);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      const auto hidden = net->at<torch::nn::LinearImpl>(0).forward(
          torch::full({2, 4}, group.rank() + 1.0, first));
      net->at<torch::nn::LinearImpl>(1)
          .forward(hidden.to(second))
          .sum()
          .backward();
      // The inputs' mean is 1.5, and the loss is linear in each weight.
      auto gradient = net->parameters()[0].grad().clone();
      group.all_reduce(gradient, ReduceOp::kMean);
      REQUIRE(nearly_equal(gradient, net->parameters()[0].grad()));
      const auto bias = net->parameters()[3].grad();
      REQUIRE(bias.device() == second);
      REQUIRE(nearly_equal(bias.cpu(), torch::full({3}, 2.0)));
    }
    verify_same_parameters(*net, group);
  });
}

GPU_TEST("complex gradients on GPUs are averaged") {
  const auto options =
      torch::dtype(torch::kComplexFloat).device(group.device());
  auto weight = torch::ones({5}, options).requires_grad_();
  const Reducer reducer(std::vector<torch::Tensor>{weight}, group);
  for (int step = 0; step < 3; ++step) {
    weight.mutable_grad().reset();
    (torch::view_as_real(weight) * (group.rank() + 1.0)).sum().backward();
    const auto mean = torch::full({5, 2}, 2.0); // of 1, 2 and 3
    REQUIRE(nearly_equal(torch::view_as_real(weight.grad()).cpu(), mean));
  }
}

/// Trains until it throws; returns the text. `before` is called before each
/// step.
std::string train_until_failure(
    const ProcessGroup& group,
    const std::function<void(int)>& before) {
  auto net = net_on_gpu(group);
  Reducer reducer(net, group);
  try {
    for (int step = 0; step < 100000; ++step) {
      before(step);
      net->zero_grad();
      const auto loss = net->forward(torch::randn({16, 7}, group.device()));
      loss.sum().backward();
      net->parameters().front().grad().sum().item(); // waits for the GPU
    }
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

/// Trains until rank `killed` is killed in its sixth step, and checks that the
/// others end soon, with a reason.
void check_killed(const ProcessGroup& group, int64_t killed) {
  auto start = Clock::now();
  const auto error = train_until_failure(group, [&](int step) {
    if (step == 5 && group.rank() == killed) {
      std::raise(SIGKILL);
    }
    start = step <= 5 ? Clock::now() : start;
  });
  REQUIRE(!error.empty());
  REQUIRE(seconds_since(start) < 30);
}

// Over sockets, since NCCL does not notice the end of a process on its host.
GPU_TEST(
    "a rank over NCCL is killed: the others end with a reason",
    3,
    kTimeout,
    {{1, 128 + SIGKILL}}) {
  setenv("NCCL_P2P_DISABLE", "1", /*overwrite=*/1);
  setenv("NCCL_SHM_DISABLE", "1", /*overwrite=*/1);
  check_killed(group, 1);
  meet_at_store(group, {"0", "2"});
}

GPU_TEST(
    "rank 0 over NCCL is killed: the others end with a reason",
    3,
    kTimeout,
    {{0, 128 + SIGKILL}}) {
  check_killed(group, 0);
}

GPU_TEST(
    "what a rank over NCCL throws reaches those that wait on a GPU",
    3,
    kTimeout,
    {}) {
  const auto start = Clock::now();
  const auto error = train_until_failure(group, [&](int step) {
    if (step == 5 && group.rank() == 1) {
      detail::report_failure(group, "boom in forward");
      throw std::runtime_error("boom in forward");
    }
  });
  REQUIRE_THAT(error, Has("boom in forward"));
  REQUIRE(seconds_since(start) < 30);
  meet_at_store(group, {"0", "1", "2"});
}

/// Causes a permanent error of this process's GPU, which NCCL's thread sees
/// during a collective, and waits for the end.
void break_gpu(const ProcessGroup& group) {
  auto tensor = torch::ones({2}, group.device());
  group.all_reduce(tensor); // the others do not call it
  const auto none = torch::full({1}, 5, tensor.options().dtype(torch::kLong));
  torch::ones_like(tensor).index_select(0, none); // an assertion in a kernel
  std::this_thread::sleep_for(std::chrono::minutes(1));
}

GPU_TEST(
    "a rank whose GPU fails for good ends, and the others get the reason",
    3,
    kTimeout,
    {{1, 128 + SIGABRT}}) {
  group.all_reduce(torch::ones({2}, group.device())); // connects the ranks
  const auto start = Clock::now();
  const auto error = train_until_failure(group, [&](int step) {
    if (step == 5 && group.rank() == 1) {
      break_gpu(group);
    }
  });
  REQUIRE_THAT(error, Has("rank 1", "device-side assert"));
  REQUIRE(seconds_since(start) < 30);
  meet_at_store(group, {"0", "2"});
}

GPU_TEST(
    "a collective over NCCL that times out says where its record is",
    2,
    ProcessGroupOptions().timeout(std::chrono::seconds(15))) {
  auto tensor = torch::ones({8}, group.device());
  group.all_reduce(tensor); // connects the ranks
  if (group.rank() == 0) {
    group.all_reduce(tensor);
    tensor.sum().item(); // returns when the watchdog has aborted it
    REQUIRE_THROWS_WITH(
        group.all_reduce(tensor),
        Has("was not complete after 15 s", "flight record of rank 0"));
  }
  meet_at_store(group, {"0", "1"});
}

GPU_TEST(
    "a first collective over NCCL that others do not come to times out",
    2,
    ProcessGroupOptions().timeout(std::chrono::seconds(10))) {
  if (group.rank() == 0) {
    auto tensor = torch::ones({8}, group.device());
    REQUIRE_THROWS_WITH(
        group.all_reduce(tensor),
        Has("timed out after 10 s", "rank 1 has not reached all_reduce"));
  }
  meet_at_store(group, {"0", "1"});
}

} // namespace ddp::test::gpu_test
