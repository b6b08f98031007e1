// The work of a backward's reduction on a device, compared with that of
// LibTorch's c10d::Reducer.

#include <bench/c10d_reducer.h>
#include <tests/support/fake_gpu.h>
#include <tests/support/gpus.h>

#include <ddp/ddp.h>

namespace ddp::test::device_work_test {

using fake_gpu::WorkCounts;

/// Many small parameters.
struct NarrowNet : LayeredNet {
  torch::nn::ModuleList layers = add("layers", torch::nn::ModuleList());

  NarrowNet() {
    for (int i = 0; i < 20; ++i) {
      layers->push_back(torch::nn::Linear(8, 8));
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    for (const auto& layer : *layers) {
      x = layer->as<torch::nn::LinearImpl>()->forward(x);
    }
    return x;
  }
};

/// A net with one unused layer.
struct PartialNet : NarrowNet {
  torch::nn::Linear never = linear("never", 8, 8);
};

/// The work of a backward with final buckets.
template <typename Forward>
WorkCounts work_of_backward(torch::nn::Module& net, const Forward& forward) {
  WorkCounts work;
  for (int step = 0; step < 5; ++step) {
    net.zero_grad();
    const auto loss = forward().sum();
    const auto before = fake_gpu::work_counts();
    loss.backward();
    work = fake_gpu::work_counts() - before;
  }
  return work;
}

/// The number with a comma before each three digits.
std::string grouped(int64_t number) {
  auto digits = std::to_string(number);
  for (auto place = digits.size(); place > 3; place -= 3) {
    digits.insert(place - 3, ",");
  }
  return digits;
}

std::string row(
    const std::string& net,
    const char* whose,
    const WorkCounts& work) {
  return detail::format(
      "|{} | {} | {} | {} | {} | {} | {} |\n",
      net,
      whose,
      work.kernels,
      work.copies,
      work.collectives,
      grouped(work.bytes),
      work.host_waits);
}

template <typename Net>
void compare(
    const ProcessGroup& group,
    const char* name,
    int64_t inputs,
    const ReducerOptions& options,
    int64_t kernels) {
  const auto input = torch::ones({2, inputs}).to(fake_gpu::kDevice);
  const auto net = net_on_gpu<Net>(group);
  const auto alone =
      work_of_backward(*net, [&] { return net->forward(input); });
  const auto reduced = net_on_gpu<Net>(group);
  const Reducer reducer(reduced->parameters(), group, options);
  const auto own =
      work_of_backward(*reduced, [&] { return reduced->forward(input); }) -
      alone;
  const auto peer = net_on_gpu<Net>(group);
  bench::C10dReducer c10d_reducer(*peer, group, options);
  const auto theirs =
      work_of_backward(
          *peer,
          [&] {
            return c10d_reducer.forward([&] { return peer->forward(input); });
          }) -
      alone;
  const auto rows =
      row(std::string(" ") + name, "ddp", own) + row("", "c10d", theirs);
  INFO(rows);
  REQUIRE(own.kernels == kernels);
  REQUIRE(own.kernels <= theirs.kernels);
  REQUIRE(own.copies <= theirs.copies);
  REQUIRE(own.collectives <= theirs.collectives);
  REQUIRE(own.bytes <= theirs.bytes);
  REQUIRE(own.host_waits <= theirs.host_waits);
  if (!options.gradient_as_bucket_view()) {
    const auto page = read_text(variable("DDP_SOURCE") + "/docs/gpus.md");
    REQUIRE_THAT(page, Has(rows));
  }
}

FAKE_GPU_TEST("a reduction gives a device no more work than c10d's Reducer") {
  for (const bool view : {false, true}) {
    const auto options = ReducerOptions().gradient_as_bucket_view(view);
    const auto finding = ReducerOptions(options).find_unused_parameters(true);
    compare<NarrowNet>(gpu_group, "40 small parameters", 8, options, 2);
    compare<UnevenNet>(gpu_group, "6 parameters in 2 buckets", 7, options, 4);
    compare<NarrowNet>(
        gpu_group, "40 parameters, `find_unused_parameters`", 8, finding, 2);
    compare<PartialNet>(gpu_group, "2 of 42 parameters unused", 8, finding, 4);
  }
}

} // namespace ddp::test::device_work_test
