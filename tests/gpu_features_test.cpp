// Training on GPUs: dtypes, layouts, batch-norm, unused parameters, groups.

#include <tests/support/batch_norm.h>
#include <tests/support/gpus.h>
#include <tests/support/twins.h>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <ddp/ddp.h>

namespace ddp::test::gpu_features_test {

using namespace torch::nn;

/// A layer of each floating-point type.
struct MixedNet : LayeredNet {
  Linear single = linear("single", 7, 33);
  Linear half = linear("half", 33, 21);
  Linear brain = linear("brain", 21, 17);
  Linear twice = linear("twice", 17, 3);

  MixedNet() {
    half->to(torch::kHalf);
    brain->to(torch::kBFloat16);
    twice->to(torch::kDouble);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(half(single(x).to(torch::kHalf)));
    x = torch::relu(brain(x.to(torch::kBFloat16)));
    return twice(x.to(torch::kDouble));
  }
};

GPU_TEST("gradients of each dtype on GPUs are the mean", 2) {
  const Twins<MixedNet> twins(group, shared());
  for (int step = 0; step < 4; ++step) {
    const auto input = input_of(group, step).to(group.device());
    twins.reset();
    twins.backward([&](auto& net) { return net.forward(input).pow(2).sum(); });
    const auto expected = average(group, *twins.local);
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto parameter = twins.net->parameters()[i];
      const auto& grad = parameter.grad();
      INFO("step " << step << ", parameter " << i);
      REQUIRE(grad.scalar_type() == parameter.scalar_type());
      // Halves of the smallest numbers of half precision are rounded.
      REQUIRE(
          (grad.scalar_type() == torch::kHalf
               ? grad.allclose(expected[i], 1e-3, 1e-6)
               : grad.equal(expected[i])));
    }
  }
}

/// Convolutions, also of one pixel, whose kernels are contiguous in every
/// format.
struct ConvNet : LayeredNet {
  Conv2d wide = add("wide", Conv2d(Conv2dOptions(4, 8, 3).padding(1)));
  BatchNorm2d norm = add("norm", BatchNorm2d(8));
  Conv2d point = add("point", Conv2d(8, 6, 1));
  Linear last = linear("last", 6, 3);

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(point(torch::relu(norm(wide(x)))));
    return last(x.mean({2, 3}));
  }
};

std::shared_ptr<ConvNet> channels_last_net(const ProcessGroup& group) {
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setAllowTF32CuDNN(false);
  auto net = net_on_gpu<ConvNet>(group);
  const torch::NoGradGuard no_grad;
  auto& weight = net->wide->weight;
  weight.set_data(weight.contiguous(torch::MemoryFormat::ChannelsLast));
  return net;
}

GPU_TEST("channels-last convolutions on GPUs train as without a Reducer", 2) {
  const auto net = channels_last_net(group);
  const auto local = channels_last_net(group);
  const auto momentum = torch::optim::SGDOptions(0.05).momentum(0.9);
  FusedSGD optimizer(net->parameters(), momentum);
  torch::optim::SGD plain(local->parameters(), momentum);
  const Reducer reducer(net, group, shared().broadcast_buffers(false));
  for (int step = 0; step < 4; ++step) {
    torch::manual_seed(100 * step + group.rank());
    const auto input = torch::randn({8, 4, 9, 9})
                           .to(group.device())
                           .contiguous(torch::MemoryFormat::ChannelsLast);
    for (const auto& each : {net, local}) {
      each->zero_grad();
      each->forward(input).pow(2).mean().backward();
    }
    INFO("step " << step);
    require_means(group, *net, *local, 1e-4, 1e-5);
    const auto means = average(group, *local);
    for (size_t i = 0; i < means.size(); ++i) {
      const auto parameter = net->parameters()[i];
      REQUIRE(parameter.grad().strides() == parameter.strides());
      local->parameters()[i].mutable_grad() = means[i];
    }
    optimizer.step();
    plain.step();
    for (size_t i = 0; i < means.size(); ++i) {
      INFO("parameter " << i);
      REQUIRE(
          net->parameters()[i].allclose(local->parameters()[i], 1e-4, 1e-5));
    }
  }
}

/// Trains a synchronised batch-norm and a converted one on this rank's rows,
/// and LibTorch's on all rows.
void check_batch_norm(
    const ProcessGroup& group,
    torch::ScalarType dtype,
    torch::MemoryFormat format,
    double tolerance) {
  const auto rows = uneven_rows(group);
  SyncBatchNorm2d synced(BatchNormOptions(6), group);
  BatchNorm2d converted(BatchNormOptions(6));
  BatchNorm2d plain(BatchNormOptions(6));
  for (Module* module :
       {static_cast<Module*>(synced.get()),
        static_cast<Module*>(converted.get()),
        static_cast<Module*>(plain.get())}) {
    const torch::NoGradGuard no_grad;
    module->to(group.device(), dtype);
    module->named_parameters()["weight"].copy_(torch::linspace(0.5, 2, 6));
    module->named_parameters()["bias"].copy_(torch::linspace(-1, 1, 6));
  }
  convert_sync_batchnorm(converted, group);
  for (int64_t step = 0; step < 3; ++step) {
    const auto whole = whole_batch(step, sum_of(rows), {6, 4, 5})
                           .to(group.device(), dtype)
                           .contiguous(format);
    const auto weights = torch::randn_like(whole);
    const auto part = part_of(whole, rows, group);
    const auto train = [&](auto& module, auto input, const auto& factors) {
      module->zero_grad();
      input = input.detach().clone().requires_grad_();
      const auto output = module->forward(input);
      (output * factors + output.square()).sum().backward();
      return std::make_pair(output.detach(), input.grad());
    };
    const auto own = part_of(weights, rows, group);
    const auto [output, gradient] = train(synced, part, own);
    const auto [same_output, same_gradient] = train(converted, part, own);
    const auto [all_output, all_gradient] = train(plain, whole, weights);
    REQUIRE(same_output.equal(output));
    REQUIRE(same_gradient.equal(gradient));
    require_close(output, part_of(all_output, rows, group), tolerance);
    require_close(gradient, part_of(all_gradient, rows, group), tolerance);
    for (const auto& parameter : plain->named_parameters()) {
      auto sum = synced->named_parameters()[parameter.key()].grad().clone();
      group.all_reduce(sum);
      require_close(sum, parameter.value().grad(), 10 * tolerance);
    }
    for (const auto& buffer : plain->named_buffers()) {
      const auto ours = synced->named_buffers()[buffer.key()];
      require_close(ours, buffer.value(), tolerance);
      REQUIRE(equal_on_all(group, ours));
    }
  }
}

GPU_TEST("a synchronised batch-norm on GPUs is that of one process") {
  check_batch_norm(
      group, torch::kDouble, torch::MemoryFormat::Contiguous, 1e-9);
  check_batch_norm(
      group, torch::kFloat, torch::MemoryFormat::ChannelsLast, 2e-4);
}

GPU_TEST("the wrapper on GPUs gives all ranks rank 0's buffers") {
  const auto net = net_on_gpu<NormNet>(group, 7, 12, 3);
  DistributedDataParallel<NormNet> model(net, group);
  const auto& mean = net->norm->running_mean;
  for (int step = 0; step < 3; ++step) {
    net->zero_grad();
    const auto input = input_of(group, step); // the wrapper moves it
    model->forward(input).pow(2).mean().backward();
    REQUIRE(equal_on_all(group, net->first->weight.grad()));
    REQUIRE(!equal_on_all(group, mean)); // each saw its own batch
    const auto firsts = group.all_gather(mean)[0];
    net->eval(); // so that a forward leaves the buffers as they are
    {
      const torch::NoGradGuard no_grad;
      model->forward(input);
    }
    net->train();
    REQUIRE(mean.equal(firsts));
    REQUIRE(net->norm->num_batches_tracked.item<int64_t>() == step + 1);
  }
}

/// One layer is never used, and one only by a single rank in some steps.
struct RareNet : UnevenNet {
  Linear never = linear("never", 7, 5);
  Linear rare = linear("rare", 7, 5);

  torch::Tensor loss(const torch::Tensor& x, bool takes_rare) {
    const auto loss = forward(x).pow(2).mean();
    return takes_rare ? loss + rare(x).pow(2).mean() : loss;
  }
};

GPU_TEST("parameters on GPUs that few ranks use are averaged for 30 steps") {
  const Twins<RareNet> twins(group, shared());
  for (int step = 0; step < 30; ++step) {
    const auto input = input_of(group, step).to(group.device());
    const bool is_rare = step % 3 == 2;
    twins.reset();
    twins.backward([&](RareNet& net) {
      return net.loss(input, is_rare && group.rank() == 1);
    });
    INFO("step " << step);
    twins.check();
    REQUIRE(!twins.net->never->weight.grad().defined());
    REQUIRE(twins.net->rare->weight.grad().defined() == is_rare);
  }
}

/// The mean of all ranks' gradients, computed on each rank without
/// communication.
std::vector<at::Tensor> means_alone(const ProcessGroup& group, int step) {
  const auto net = net_on_gpu(group);
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    torch::manual_seed(100 * step + rank);
    const auto input = torch::randn({16, 7}).to(group.device());
    (net->forward(input).pow(2).mean() / group.size()).backward();
  }
  std::vector<at::Tensor> means;
  for (const auto& parameter : net->parameters()) {
    means.push_back(parameter.grad());
  }
  return means;
}

/// A net with a Reducer, which both run on a separate stream.
struct Training {
  explicit Training(const ProcessGroup& group)
      : net(net_on_gpu(group)),
        reducer(net, group, shared()),
        stream(c10::impl::VirtualGuardImpl(group.device().type())
                   .getStreamFromGlobalPool(group.device())) {}

  struct Step {
    at::Tensor input;
    std::vector<at::Tensor> means;
  };

  /// Returns an error; empty if there is none. Runs on any thread.
  std::string run(const std::vector<Step>& steps) const {
    const c10::StreamGuard guard(stream);
    try {
      for (size_t step = 0; step < steps.size(); ++step) {
        net->zero_grad();
        net->forward(steps[step].input).pow(2).mean().backward();
        for (size_t i = 0; i < net->parameters().size(); ++i) {
          if (!nearly_equal(
                  net->parameters()[i].grad(), steps[step].means[i])) {
            return c10::str("step ", step, ", parameter ", i, " differs");
          }
        }
      }
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }

  std::shared_ptr<UnevenNet> net;
  Reducer reducer;
  c10::Stream stream;
};

std::vector<Training::Step> steps_from(
    const ProcessGroup& group,
    int begin,
    int end) {
  std::vector<Training::Step> steps;
  for (int step = begin; step < end; ++step) {
    steps.push_back(
        {input_of(group, step).to(group.device()), means_alone(group, step)});
  }
  return steps;
}

GPU_TEST("Reducers of split and duplicated groups run on two threads") {
  // Streams that share a queue of the GPU would wait for each other.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/1);
  const auto reversed = group.split(0, -group.rank());
  REQUIRE(reversed.rank() == 2 - group.rank());
  const Training first(reversed);
  const Training second(group.duplicate());
  const auto begin = steps_from(group, 0, 2);
  const auto others = steps_from(group, 2, 12);
  const auto more = steps_from(group, 12, 22);
  torch::cuda::synchronize();
  // First one after another: in these backwards, ranks exchange the order of
  // buckets, and autograd has one thread for all backwards on a GPU.
  REQUIRE(first.run(begin) == "");
  REQUIRE(second.run(begin) == "");
  auto beside =
      std::async(std::launch::async, [&] { return second.run(more); });
  const auto own = first.run(others);
  REQUIRE(beside.get() == "");
  REQUIRE(own == "");
}

GPU_TEST("batch-norms and two Reducers share a backward over NCCL") {
  // Each has a separate communicator.
  const auto normed = net_on_gpu<NormNet>(group, 7, 300, 3);
  convert_sync_batchnorm(normed, group);
  const auto net = net_on_gpu(group);
  const auto options = ReducerOptions().bucket_cap_mb(1e-3);
  const Reducer normed_reducer(normed, group, options);
  const Reducer reducer(net, group, options);
  torch::optim::SGD optimizer(normed->parameters(), 0.01);
  for (int step = 0; step < 20; ++step) {
    const auto input = input_of(group, step).to(group.device());
    optimizer.zero_grad();
    net->zero_grad();
    (normed->forward(input).pow(2).mean() + net->forward(input).pow(2).mean())
        .backward();
    optimizer.step();
    const auto means = means_alone(group, step);
    for (size_t i = 0; i < means.size(); ++i) {
      INFO("step " << step << ", parameter " << i);
      REQUIRE(nearly_equal(net->parameters()[i].grad(), means[i]));
    }
  }
  verify_same_parameters(*normed, group);
}

} // namespace ddp::test::gpu_features_test
