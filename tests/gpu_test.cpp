#include <tests/support/catch.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/backends/nccl.h>
#include <ddp/distributed_data_parallel.h>
#include <ddp/verification.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <iostream>

using ddp::ProcessGroup;
using ddp::test::UnevenNet;

namespace {

/// The GPUs to test with; says "skipped" where there are none.
int gpus() {
  const auto usable = ddp::backends::nccl::usable_gpus();
  if (usable.bus_addresses.empty()) {
    std::cout << "[skipped] no usable GPU: " << usable.note << "\n";
  }
  return static_cast<int>(usable.bus_addresses.size());
}

void run_on_gpus(int size, const std::function<void(ProcessGroup)>& body) {
  ddp::test::RankOptions options;
  options.environment = {{"DDP_BACKEND", "nccl"}};
  options.timeout = std::chrono::seconds(120);
  ddp::test::ranks(
      size, [&] { body(ddp::init_process_group()); }, options);
}

} // namespace

TEST_CASE("collectives over NCCL") {
  if (const int size = gpus()) {
    run_on_gpus(size, [size](ProcessGroup group) {
      REQUIRE(group.backend() == "nccl");
      REQUIRE(group.device().is_cuda());
      auto tensor = torch::ones({1000}, group.device());
      group.all_reduce(tensor);
      REQUIRE(tensor.eq(size).all().item<bool>());
      group.all_reduce(tensor, ddp::ReduceOp::kMean);
      REQUIRE(tensor.eq(size).all().item<bool>());
      auto on_cpu = torch::ones({3}); // CPU tensors go over gloo
      group.all_reduce(on_cpu);
      REQUIRE(on_cpu.eq(size).all().item<bool>());
      REQUIRE(group.all_gather(tensor).size() == static_cast<size_t>(size));
      group.barrier();
    });
  }
}

TEST_CASE("the same net trains on GPUs as on the CPU") {
  if (const int size = gpus()) {
    run_on_gpus(size, [](ProcessGroup group) {
      torch::manual_seed(1);
      auto net = std::make_shared<UnevenNet>();
      auto reference = std::make_shared<UnevenNet>();
      ddp::test::copy_parameters(*net, *reference);
      net->to(group.device());
      ddp::DistributedDataParallel<UnevenNet> model(net, group);
      ddp::Reducer reducer(reference, group);
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      torch::optim::SGD reference_optimizer(reference->parameters(), 0.1);
      for (int step = 0; step < 5; ++step) {
        torch::manual_seed(100 * step + group.rank());
        const auto input = torch::randn({16, 7});
        optimizer.zero_grad();
        model->forward(input.to(group.device())).pow(2).mean().backward();
        optimizer.step();
        reference_optimizer.zero_grad();
        reference->forward(input).pow(2).mean().backward();
        reference_optimizer.step();
      }
      for (size_t i = 0; i < net->parameters().size(); ++i) {
        REQUIRE(torch::allclose(
            net->parameters()[i].cpu(),
            reference->parameters()[i],
            1e-3,
            1e-4));
      }
      ddp::verify_same_parameters(*net, group);
    });
  }
}
