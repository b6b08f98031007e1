// The Reducer's work on a fake GPU, which records the order of its streams and
// the host's waits (support/fake_gpu.h).

#include <tests/support/comm_hooks.h>
#include <tests/support/fake_gpu.h>
#include <tests/support/gpus.h>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <ddp/ddp.h>
#include <ddp/reducer/buckets/futures.h>
#include <ddp/support/current_stream.h>

namespace ddp::test::fake_gpu_test {

/// A net whose second part is on another device than the first.
struct TwoPartNet : LayeredNet {
  torch::nn::Linear first = linear("first", 6, 40);
  torch::nn::Linear second = linear("second", 40, 5);
  torch::Tensor count = second->register_buffer("count", torch::zeros({2}));

  torch::Tensor forward(const torch::Tensor& input) {
    return second(first(input).tanh().to(second->weight.device()));
  }
};

/// A net on the device, and one with the same values on the CPU, each with a
/// Reducer.
template <typename Net>
struct OnBoth {
  OnBoth(
      const ProcessGroup& group,
      const ProcessGroup& gpu_group,
      const ReducerOptions& options = {},
      const ReducerOptions& options_on_cpu = {})
      : net(net_on_gpu<Net>(gpu_group)),
        reference(net_on_gpu<Net>(group)),
        reducer(net, gpu_group, options),
        reference_reducer(reference, group, options_on_cpu) {}

  void zero_grad(bool set_to_none = true) {
    net->zero_grad(set_to_none);
    reference->zero_grad(set_to_none);
  }

  /// Runs a backward of `loss` on both nets.
  template <typename Loss>
  void backward(const torch::Tensor& input, const Loss& loss) {
    loss(*net, input.to(fake_gpu::kDevice)).backward();
    loss(*reference, input).backward();
  }
  void backward(const torch::Tensor& input) {
    backward(input, [](Net& each, const torch::Tensor& x) {
      return each.forward(x).pow(2).mean();
    });
  }

  void check() const {
    for (size_t i = 0; i < net->parameters().size(); ++i) {
      INFO("parameter " << i);
      const auto gpu = net->parameters()[i].grad();
      const auto cpu = reference->parameters()[i].grad();
      REQUIRE(gpu.defined() == cpu.defined());
      REQUIRE((!cpu.defined() || torch::equal(fake_gpu::on_cpu(gpu), cpu)));
    }
  }

  std::shared_ptr<Net> net, reference;
  Reducer reducer, reference_reducer;
};

template <typename Net>
void require_the_cpus_bits(
    const ProcessGroup& group,
    const ProcessGroup& gpu_group) {
  for (const bool keep : {false, true}) {
    for (const bool view : {false, true}) {
      const auto options =
          ReducerOptions().bucket_cap_mb(0.5).gradient_as_bucket_view(view);
      OnBoth<Net> both(group, gpu_group, options, options);
      for (int step = 0; step < 4; ++step) {
        both.zero_grad(!keep);
        both.backward(batch(group, step, 7));
        INFO("step " << step << ", keep " << keep << ", view " << view);
        both.check();
      }
    }
  }
}

struct LargeNet : LayeredNet {
  torch::nn::Linear large = linear("large", 7, 200'000);
  torch::Tensor forward(const torch::Tensor& x) {
    return large(x);
  }
};

FAKE_GPU_TEST("on a device with streams gradients have the CPU's bits") {
  require_the_cpus_bits<UnevenNet>(group, gpu_group);
  require_the_cpus_bits<LargeNet>(group, gpu_group);
}

FAKE_GPU_TEST(
    "the host waits for the device where a parameter is unused only") {
  auto net = net_on_gpu<BranchNet>(gpu_group);
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
}

FAKE_GPU_TEST("a wrapper's step does not make the host wait for the device") {
  auto net = net_on_gpu(gpu_group);
  net->register_buffer("steps", torch::zeros({3}).to(fake_gpu::kDevice));
  DistributedDataParallel<UnevenNet> model(net, gpu_group);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int step = 0; step < 5; ++step) {
    const auto input = batch(group, step, 7).to(fake_gpu::kDevice);
    const auto before = fake_gpu::host_waits();
    optimizer.zero_grad();
    model->forward(input).pow(2).mean().backward();
    optimizer.step();
    if (step >= 2) { // the buckets are final
      REQUIRE(fake_gpu::host_waits() == before);
    }
  }
}

FAKE_GPU_TEST("gradients that come on several streams are joined") {
  auto first = net_on_gpu(gpu_group);
  auto second = net_on_gpu(gpu_group);
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
      INFO("step " << step);
      fake_gpu::require_no_races();
    }
  }
}

FAKE_GPU_TEST("the device's checker sees a stream that does not wait", 1) {
  auto tensor = torch::ones({8}).to(fake_gpu::kDevice);
  tensor.add_(1);
  const c10::StreamGuard guard(fake_gpu::new_stream());
  tensor.mul_(2);
  REQUIRE_FALSE(fake_gpu::order().take_races().empty());
}

FAKE_GPU_TEST("on a device with streams what no rank used stays as it was") {
  OnBoth<BranchNet> both(group, gpu_group);
  for (int step = 0; step < 6; ++step) {
    const bool left = step < 3 || group.rank() == 1;
    both.backward(batch(group, step, 4), [left](auto& net, const auto& x) {
      return net.forward(x, left).sum();
    });
    INFO("step " << step);
    both.check();
  }
}

FAKE_GPU_TEST(
    "on a device with streams no_sync and create_graph give the CPU's") {
  OnBoth<BranchNet> both(group, gpu_group);
  const auto backward = [&](int step, bool create_graph) {
    const auto input = batch(group, step, 4);
    const auto run = [&](BranchNet& net, const torch::Tensor& x) {
      net.forward(x, true).pow(2).sum().backward(
          {}, /*retain_graph=*/true, create_graph);
    };
    run(*both.net, input.to(fake_gpu::kDevice));
    run(*both.reference, input);
  };
  for (int step = 0; step < 4; ++step) {
    {
      const auto guard = both.reducer.no_sync();
      const auto reference_guard = both.reference_reducer.no_sync();
      backward(step, false);
    }
    backward(step + 10, false);
    both.check();
    both.zero_grad();
    backward(step + 20, true);
    both.check();
    both.zero_grad();
  }
}

FAKE_GPU_TEST("a model on two devices is averaged on both") {
  torch::manual_seed(group.rank());
  auto net = std::make_shared<TwoPartNet>();
  auto reference = std::make_shared<TwoPartNet>();
  broadcast_module_state(*reference, group);
  copy_parameters(*reference, *net);
  if (group.rank() != 0) { // construction must set rank 0's values
    const torch::NoGradGuard no_grad;
    for (auto& parameter : net->parameters()) {
      parameter.add_(group.rank());
    }
  }
  net->second->to(fake_gpu::kDevice);
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
}

FAKE_GPU_TEST("a sharded optimizer steps a model on two devices") {
  const auto make = [] {
    torch::manual_seed(1);
    auto net = std::make_shared<TwoPartNet>();
    net->second->to(fake_gpu::kDevice);
    return net;
  };
  const auto sharded = make();
  const auto plain = make();
  const Reducer reducer(sharded, gpu_group);
  const Reducer plain_reducer(plain, gpu_group);
  const torch::optim::AdamOptions options(1e-2);
  ZeroRedundancyOptimizer<torch::optim::Adam> optimizer(
      sharded->parameters(), gpu_group, options);
  torch::optim::Adam expected(plain->parameters(), options);
  for (int step = 0; step < 3; ++step) {
    for (const auto& net : {sharded, plain}) {
      net->zero_grad();
      net->forward(batch(group, step, 6)).pow(2).mean().backward();
    }
    optimizer.step();
    expected.step();
    for (size_t i = 0; i < plain->parameters().size(); ++i) {
      INFO("step " << step << ", parameter " << i);
      REQUIRE(torch::equal(
          fake_gpu::on_cpu(sharded->parameters()[i]),
          fake_gpu::on_cpu(plain->parameters()[i])));
    }
  }
  REQUIRE(optimizer.state().size() < expected.state().size());
}

/// A net of complex and real parameters.
struct ComplexNet : torch::nn::Module {
  torch::Tensor weight = register_parameter(
      "weight",
      torch::randn({7, 300}, torch::kComplexFloat));
  torch::Tensor bias =
      register_parameter("bias", torch::randn({300}, torch::kComplexFloat));
  torch::Tensor scale = register_parameter("scale", torch::randn({300}));

  torch::Tensor forward(const torch::Tensor& input) {
    const auto output = input.mm(weight) + bias;
    return torch::view_as_real(output) * scale.unsqueeze(1);
  }
};

FAKE_GPU_TEST("on a device with streams complex gradients are the CPU's") {
  const auto make_hooks = [] {
    return Hooks{
        nullptr,
        fp16_compress_hook(),
        chain_of(
            {std::make_shared<AllReduceHook>(), std::make_shared<NoopHook>()})};
  };
  const auto hooks = make_hooks();
  const auto reference_hooks = make_hooks();
  for (size_t h = 0; h < hooks.size(); ++h) {
    OnBoth<ComplexNet> both(
        group, gpu_group, with_hook(hooks[h]), with_hook(reference_hooks[h]));
    for (int step = 0; step < 3; ++step) {
      both.zero_grad();
      const auto real = batch(group, step, 7);
      both.backward(torch::complex(real, real * 2));
      for (size_t i = 0; i < both.net->parameters().size(); ++i) {
        const auto gpu = fake_gpu::on_cpu(both.net->parameters()[i].grad());
        const auto cpu = both.reference->parameters()[i].grad();
        INFO(
            "hook " << h << ", step " << step << ", parameter " << i
                    << ": they differ by "
                    << (gpu - cpu).abs().max().item<double>() << " of "
                    << cpu.abs().max().item<double>());
        REQUIRE(torch::allclose(gpu, cpu, 1e-5, 1e-6));
      }
    }
  }
}

FAKE_GPU_TEST("a stream other than the default one waits for what gloo left") {
  auto tensor = torch::ones({8}).to(fake_gpu::kDevice);
  tensor.add_(1); // gloo's part, on the default stream
  const c10::StreamGuard guard(fake_gpu::new_stream());
  detail::follow_default_stream(
      gpu_group, fake_gpu::kDevice, /*reduced_by=*/c10::kCPU);
  tensor.mul_(2);
}

FAKE_GPU_TEST("buckets lie in the backend's memory where it has enough") {
  const auto backward = [&] {
    OnBoth<UnevenNet> both(group, gpu_group);
    both.backward(batch(group, 0, 7));
    both.check();
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
}

} // namespace ddp::test::fake_gpu_test
