// The Reducer's work on a GPU, where there is none: on a device that notes the
// order of its streams and the host's waits (support/fake_gpu.h).

#include <tests/support/fake_gpu.h>
#include <tests/support/nearly_equal.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <ddp/comm_hooks/default_hooks.h>
#include <ddp/distributed_data_parallel.h>
#include <ddp/reducer/buckets/futures.h>
#include <ddp/support/current_stream.h>

namespace ddp::test::fake_gpu_test {

/// Runs `body` with a group for CPU tensors and one for the device's.
void gpu_ranks(
    int size,
    const std::function<void(ProcessGroup, ProcessGroup)>& body) {
  ranks(size, [&](ProcessGroup group) {
    fake_gpu::install();
    body(group, fake_gpu::group_of(group));
    const auto races = fake_gpu::order().take_races();
    INFO((races.empty() ? "" : races[0]));
    REQUIRE(races.empty());
  });
}

template <typename Net>
std::shared_ptr<Net> net_on(const c10::Device& device) {
  torch::manual_seed(1);
  auto net = std::make_shared<Net>();
  net->to(device);
  return net;
}

/// A net whose second part is on another device than the first.
class TwoPartNet : public torch::nn::Module {
 public:
  TwoPartNet()
      : first_(register_module("first", torch::nn::Linear(6, 40))),
        second_(register_module("second", torch::nn::Linear(40, 5))) {
    second_->register_buffer("count", torch::zeros({2}));
  }

  void move_second_to(const c10::Device& device) {
    device_ = device;
    second_->to(device);
  }

  torch::Tensor forward(const torch::Tensor& input) {
    return second_->forward(first_->forward(input).tanh().to(device_));
  }

 private:
  c10::Device device_{c10::kCPU};
  torch::nn::Linear first_;
  torch::nn::Linear second_;
};

void require_equal(
    const torch::nn::Module& on_gpu,
    const torch::nn::Module& on_cpu) {
  for (size_t i = 0; i < on_cpu.parameters().size(); ++i) {
    INFO("parameter " << i);
    const auto gpu = on_gpu.parameters()[i].grad();
    const auto cpu = on_cpu.parameters()[i].grad();
    REQUIRE(gpu.defined() == cpu.defined());
    REQUIRE((!cpu.defined() || torch::equal(fake_gpu::on_cpu(gpu), cpu)));
  }
}

TEST_CASE("on a device with streams gradients have the CPU's bits") {
  gpu_ranks(3, [](ProcessGroup group, ProcessGroup gpu_group) {
    for (const bool keep : {false, true}) {
      for (const bool view : {false, true}) {
        const auto options =
            ReducerOptions().bucket_cap_mb(0.5).gradient_as_bucket_view(view);
        auto net = net_on<UnevenNet>(fake_gpu::kDevice);
        auto reference = net_on<UnevenNet>(c10::kCPU);
        Reducer reducer(net, gpu_group, options);
        Reducer reference_reducer(reference, group, options);
        for (int step = 0; step < 4; ++step) {
          net->zero_grad(!keep);
          reference->zero_grad(!keep);
          const auto input = batch(group, step, 7);
          net->forward(input.to(fake_gpu::kDevice)).pow(2).mean().backward();
          reference->forward(input).pow(2).mean().backward();
          INFO("step " << step << ", keep " << keep << ", view " << view);
          require_equal(*net, *reference);
        }
      }
    }
  });
}

TEST_CASE("on a device with streams large gradients have the CPU's bits") {
  struct LargeNet : torch::nn::Module {
    torch::nn::Linear large =
        register_module("large", torch::nn::Linear(7, 200'000));
    torch::Tensor forward(const torch::Tensor& x) {
      return large(x);
    }
  };
  gpu_ranks(3, [](ProcessGroup group, ProcessGroup gpu_group) {
    auto net = net_on<LargeNet>(fake_gpu::kDevice);
    auto reference = net_on<LargeNet>(c10::kCPU);
    const Reducer reducer(net, gpu_group);
    const Reducer reference_reducer(reference, group);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      reference->zero_grad();
      const auto input = batch(group, step, 7);
      net->forward(input.to(fake_gpu::kDevice)).pow(2).mean().backward();
      reference->forward(input).pow(2).mean().backward();
      INFO("step " << step);
      require_equal(*net, *reference);
    }
  });
}

TEST_CASE("the host waits for the device where a parameter is unused only") {
  gpu_ranks(3, [](ProcessGroup group, ProcessGroup gpu_group) {
    auto net = net_on<BranchNet>(fake_gpu::kDevice);
    std::vector<at::Tensor> used;
    for (const auto& pair : net->named_parameters()) {
      if (pair.key().rfind("never", 0) != 0) {
        used.push_back(pair.value());
      }
    }
    Reducer reducer(used, gpu_group);
    for (int step = 0; step < 6; ++step) {
      const auto input = batch(group, step, 4).to(fake_gpu::kDevice);
      net->zero_grad();
      auto output = net->forward(input, true);
      if (step % 2 == 0) {
        output = output + net->forward(input, false);
      }
      const auto loss = output.sum();
      const auto before = fake_gpu::host_waits();
      loss.backward();
      INFO("step " << step);
      if (step > 1) { // before, gradients are compared over ranks
        REQUIRE(fake_gpu::host_waits() - before == (step % 2 == 0 ? 0 : 1));
      }
    }
  });
}

TEST_CASE("a wrapper's step does not make the host wait for the device") {
  gpu_ranks(3, [](ProcessGroup group, ProcessGroup gpu_group) {
    auto net = net_on<UnevenNet>(fake_gpu::kDevice);
    net->register_buffer("steps", torch::zeros({3}).to(fake_gpu::kDevice));
    DistributedDataParallel<UnevenNet> model(net, gpu_group);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int step = 0; step < 5; ++step) {
      const auto input = batch(group, step, 7).to(fake_gpu::kDevice);
      const auto before = fake_gpu::host_waits();
      optimizer.zero_grad();
      model->forward(input).pow(2).mean().backward();
      optimizer.step();
      if (step >= 2) { // the buckets are settled
        REQUIRE(fake_gpu::host_waits() == before);
      }
    }
  });
}

TEST_CASE("gradients that come on several streams are joined") {
  gpu_ranks(3, [](ProcessGroup group, ProcessGroup gpu_group) {
    auto first = net_on<UnevenNet>(fake_gpu::kDevice);
    auto second = net_on<UnevenNet>(fake_gpu::kDevice);
    auto parameters = first->parameters();
    const auto more = second->parameters();
    parameters.insert(parameters.end(), more.begin(), more.end());
    Reducer reducer(parameters, gpu_group);
    const auto side = fake_gpu::new_stream();
    for (const bool keep : {false, true}) {
      for (int step = 0; step < 4; ++step) {
        first->zero_grad(!keep);
        second->zero_grad(!keep);
        const auto input = batch(group, step, 7).to(fake_gpu::kDevice);
        auto loss = first->forward(input).sum();
        at::Tensor other;
        {
          const c10::StreamGuard guard(side);
          other = second->forward(input).sum();
        }
        c10::Event done(c10::kPrivateUse1);
        done.record(side);
        done.block(detail::current_stream(fake_gpu::kDevice));
        (loss + other).backward();
        for (const auto& parameter : parameters) { // reads them
          if (parameter.grad().defined()) {
            parameter.grad().clone();
          }
        }
        const auto races = fake_gpu::order().take_races();
        INFO("step " << step << ": " << (races.empty() ? "" : races[0]));
        REQUIRE(races.empty());
      }
    }
  });
}

TEST_CASE("the device's checker sees a stream that does not wait") {
  gpu_ranks(1, [](ProcessGroup, ProcessGroup) {
    auto tensor = torch::ones({8}).to(fake_gpu::kDevice);
    tensor.add_(1);
    const c10::StreamGuard guard(fake_gpu::new_stream());
    tensor.mul_(2);
    REQUIRE_FALSE(fake_gpu::order().take_races().empty());
  });
}

TEST_CASE("on a device with streams what no rank used stays as it was") {
  gpu_ranks(3, [](ProcessGroup group, ProcessGroup gpu_group) {
    auto net = net_on<BranchNet>(fake_gpu::kDevice);
    auto reference = net_on<BranchNet>(c10::kCPU);
    Reducer reducer(net, gpu_group);
    Reducer reference_reducer(reference, group);
    for (int step = 0; step < 6; ++step) {
      const bool left = step < 3 || group.rank() == 1;
      const auto input = batch(group, step, 4);
      net->forward(input.to(fake_gpu::kDevice), left).sum().backward();
      reference->forward(input, left).sum().backward();
      INFO("step " << step);
      require_equal(*net, *reference);
    }
  });
}

TEST_CASE("on a device with streams no_sync and create_graph give the CPU's") {
  gpu_ranks(3, [](ProcessGroup group, ProcessGroup gpu_group) {
    auto net = net_on<BranchNet>(fake_gpu::kDevice);
    auto reference = net_on<BranchNet>(c10::kCPU);
    Reducer reducer(net, gpu_group);
    Reducer reference_reducer(reference, group);
    const auto backward = [&](int step, bool create_graph) {
      const auto input = batch(group, step, 4);
      net->forward(input.to(fake_gpu::kDevice), true)
          .pow(2)
          .sum()
          .backward({}, /*retain_graph=*/true, create_graph);
      reference->forward(input, true)
          .pow(2)
          .sum()
          .backward({}, /*retain_graph=*/true, create_graph);
    };
    for (int step = 0; step < 4; ++step) {
      {
        const auto guard = reducer.no_sync();
        const auto reference_guard = reference_reducer.no_sync();
        backward(step, false);
      }
      backward(step + 10, false);
      require_equal(*net, *reference);
      net->zero_grad();
      reference->zero_grad();
      backward(step + 20, true);
      require_equal(*net, *reference);
      net->zero_grad();
      reference->zero_grad();
    }
  });
}

TEST_CASE("a model on two devices is averaged on both") {
  gpu_ranks(3, [](ProcessGroup group, ProcessGroup gpu_group) {
    torch::manual_seed(group.rank());
    auto net = std::make_shared<TwoPartNet>();
    auto reference = std::make_shared<TwoPartNet>();
    broadcast_module_state(*reference, group);
    copy_parameters(*reference, *net);
    if (group.rank() != 0) { // construction has to give it rank 0's
      const torch::NoGradGuard no_grad;
      for (auto& parameter : net->parameters()) {
        parameter.add_(group.rank());
      }
    }
    net->move_second_to(fake_gpu::kDevice);
    const auto options = ReducerOptions().bucket_cap_mb(1e-4);
    DistributedDataParallel<TwoPartNet> model(net, gpu_group, options);
    DistributedDataParallel<TwoPartNet> expected(reference, group);
    for (int step = 0; step < 4; ++step) {
      net->zero_grad();
      reference->zero_grad();
      const auto input = batch(group, step, 6);
      model->forward(input).pow(2).mean().backward();
      expected->forward(input).pow(2).mean().backward();
      for (size_t i = 0; i < net->parameters().size(); ++i) {
        const auto grad = net->parameters()[i].grad();
        INFO("step " << step << ", parameter " << i);
        REQUIRE(grad.device() == net->parameters()[i].device());
        REQUIRE(nearly_equal(
            fake_gpu::on_cpu(grad), reference->parameters()[i].grad()));
      }
    }
    for (const auto& bucket : model->reducer().buckets()) {
      for (const size_t index : bucket) {
        REQUIRE(
            net->parameters()[index].device() ==
            net->parameters()[bucket[0]].device());
      }
    }
  });
}

/// A net of complex numbers, and of some that are not.
class ComplexNet : public torch::nn::Module {
 public:
  ComplexNet()
      : weight_(register_parameter(
            "weight",
            torch::randn({7, 300}, torch::kComplexFloat))),
        bias_(register_parameter(
            "bias",
            torch::randn({300}, torch::kComplexFloat))),
        scale_(register_parameter("scale", torch::randn({300}))) {}

  torch::Tensor forward(const torch::Tensor& input) {
    const auto output = input.mm(weight_) + bias_;
    return torch::view_as_real(output) * scale_.unsqueeze(1);
  }

 private:
  torch::Tensor weight_;
  torch::Tensor bias_;
  torch::Tensor scale_;
};

TEST_CASE("on a device with streams complex gradients are the CPU's") {
  gpu_ranks(3, [](ProcessGroup group, ProcessGroup gpu_group) {
    const auto make_hooks = [] {
      return std::vector<std::shared_ptr<CommHook>>{
          nullptr,
          fp16_compress_hook(),
          std::make_shared<HookChain>(std::vector<std::shared_ptr<CommHook>>{
              std::make_shared<AllReduceHook>(),
              std::make_shared<NoopHook>()})};
    };
    const auto hooks = make_hooks();
    const auto reference_hooks = make_hooks();
    for (size_t h = 0; h < hooks.size(); ++h) {
      auto net = net_on<ComplexNet>(fake_gpu::kDevice);
      auto reference = net_on<ComplexNet>(c10::kCPU);
      Reducer reducer(net, gpu_group, ReducerOptions().comm_hook(hooks[h]));
      Reducer reference_reducer(
          reference, group, ReducerOptions().comm_hook(reference_hooks[h]));
      for (int step = 0; step < 3; ++step) {
        net->zero_grad();
        reference->zero_grad();
        const auto real = batch(group, step, 7);
        const auto input = torch::complex(real, real * 2);
        net->forward(input.to(fake_gpu::kDevice)).pow(2).mean().backward();
        reference->forward(input).pow(2).mean().backward();
        for (size_t i = 0; i < net->parameters().size(); ++i) {
          const auto gpu = fake_gpu::on_cpu(net->parameters()[i].grad());
          const auto cpu = reference->parameters()[i].grad();
          INFO(
              "hook " << h << ", step " << step << ", parameter " << i
                      << ": they differ by "
                      << (gpu - cpu).abs().max().item<double>() << " of "
                      << cpu.abs().max().item<double>());
          REQUIRE(torch::allclose(gpu, cpu, 1e-5, 1e-6));
        }
      }
    }
  });
}

TEST_CASE("a stream other than the default one waits for what gloo left") {
  gpu_ranks(3, [](ProcessGroup, ProcessGroup gpu_group) {
    auto tensor = torch::ones({8}).to(fake_gpu::kDevice);
    tensor.add_(1); // gloo's part, on the default stream
    const c10::StreamGuard guard(fake_gpu::new_stream());
    detail::follow_default_stream(
        gpu_group, fake_gpu::kDevice, /*reduced_by=*/c10::kCPU);
    tensor.mul_(2);
  });
}

TEST_CASE("buckets lie in the backend's memory where it has enough") {
  gpu_ranks(3, [](ProcessGroup group, ProcessGroup gpu_group) {
    const auto backward = [&] {
      auto net = net_on<UnevenNet>(fake_gpu::kDevice);
      auto reference = net_on<UnevenNet>(c10::kCPU);
      const Reducer reducer(net, gpu_group);
      const Reducer reference_reducer(reference, group);
      const auto input = batch(group, 0, 7);
      net->forward(input.to(fake_gpu::kDevice)).pow(2).mean().backward();
      reference->forward(input).pow(2).mean().backward();
      require_equal(*net, *reference);
      REQUIRE_FALSE(fake_gpu::is_pool_open());
    };
    fake_gpu::set_backend_memory(fake_gpu::BackendMemory::kSome);
    backward();
    const auto tensors = fake_gpu::backend_tensors();
    REQUIRE(tensors > 0);
    fake_gpu::set_backend_memory(fake_gpu::BackendMemory::kTooLittle);
    backward();
    fake_gpu::set_backend_memory(fake_gpu::BackendMemory::kSome);
    setenv("DDP_DISABLE_COMM_MEM", "1", /*overwrite=*/1);
    backward();
    REQUIRE(fake_gpu::backend_tensors() == tensors);
  });
}

} // namespace ddp::test::fake_gpu_test
