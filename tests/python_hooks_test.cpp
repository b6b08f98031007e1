// Communication hooks and model averagers, compared with Python's bit for bit.
#include <tests/support/hook_training.h>
#include <tests/support/launched.h>
#include <tests/support/ranks.h>

#include <ddp/ddp.h>

namespace ddp::test::python_hooks_test {

using Results = std::vector<at::Tensor>;
using Hooks = std::vector<std::pair<std::string, std::shared_ptr<CommHook>>>;

std::shared_ptr<CommHook> power(const PowerSGDOptions& options) {
  return std::make_shared<PowerSGDHook>(options);
}

/// The hooks by their names in comm_hooks.py.
Hooks make_hooks(const ProcessGroup& group) {
  Hooks hooks;
  hooks.emplace_back("fp16", fp16_compress_hook());
  hooks.emplace_back("bf16", bf16_compress_hook());
  hooks.emplace_back(
      "allreduce", // in a chain, each rank divides
      chain_of(
          {std::make_shared<NoopHook>(), std::make_shared<AllReduceHook>()}));
  for (const int64_t rank : {1, 2, 4}) {
    hooks.emplace_back(
        "power" + std::to_string(rank),
        power(early().matrix_approximation_rank(rank)));
  }
  hooks.emplace_back(
      "power_cold",
      power(PowerSGDOptions()
                .start_iteration(0)
                .use_error_feedback(false)
                .warm_start(false)));
  hooks.emplace_back(
      "power_batched_shapes",
      power(early()
                .matrix_approximation_rank(2)
                .batch_tensors_with_same_shape(true)
                .orthogonalization_epsilon(1e-8)
                .random_seed(12345)
                .min_compression_rate(1)));
  hooks.emplace_back("power_whole", power(early().whole_bucket(true)));
  hooks.emplace_back("power_fp16", fp16_compress_hook(power(early())));
  const auto part = group.split(group.rank() / 2);
  for (const bool local : {true, false}) {
    hooks.emplace_back(
        local ? "post_local_True" : "post_local_False",
        std::make_shared<PostLocalSGDHook>(
            PostLocalSGDOptions()
                .start_iteration(2)
                .subgroup(part)
                .post_local_gradient_allreduce(local)));
  }
  hooks.emplace_back("quantized", std::make_shared<QuantizationHook>());
  hooks.emplace_back(
      "quantized_channels",
      std::make_shared<QuantizationHook>(
          QuantizationOptions().channel_size(512)));
  hooks.emplace_back("noop", std::make_shared<NoopHook>());
  return hooks;
}

Results train(
    const ProcessGroup& group,
    const std::shared_ptr<CommHook>& hook) {
  const auto parameters = hook_parameters();
  Reducer reducer(parameters, group, hook_options(hook));
  Results results;
  for (int step = 0; step < kHookSteps; ++step) {
    backward_to(parameters, hook_gradients(step, group.rank()));
    for (const auto& parameter : parameters) {
      results.push_back(parameter.grad().clone());
    }
  }
  REQUIRE(reducer.buckets().size() > 2);
  return results;
}

Results average(const ProcessGroup& group, ModelAverager& averager) {
  const auto parameters = hook_parameters();
  Results results;
  const at::NoGradGuard no_grad;
  for (int step = 0; step < kHookSteps; ++step) {
    const auto gradients = hook_gradients(step, group.rank());
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (i != 1) {
        parameters[i].mutable_grad() = gradients[i];
        at::Tensor(parameters[i]).sub_(0.1 * gradients[i]);
      }
    }
    averager.average_parameters(parameters);
    for (const auto& parameter : parameters) {
      results.push_back(parameter.detach().clone());
    }
  }
  return results;
}

void check_equal(
    const std::string& name,
    const Results& results,
    const c10::IValue& python) {
  const auto expected = python.toGenericDict().at(name).toList().vec();
  REQUIRE(expected.size() == results.size());
  const auto count = results.size() / kHookSteps;
  for (size_t i = 0; i < results.size(); ++i) {
    const auto tensor = expected[i].toTensor();
    INFO(
        name << ", step " << i / count << ", parameter " << i % count << ": "
             << results[i].ne(tensor).sum().item<int64_t>() << " of "
             << tensor.numel() << " values differ, by at most "
             << largest(results[i] - tensor));
    REQUIRE(results[i].equal(tensor));
  }
}

void compare(const std::string& folder) {
  const auto group = init_process_group();
  if (group.rank() == 0) {
    python_output(
        {parity_program("comm_hooks.py"),
         folder,
         std::to_string(group.size())});
  }
  group.barrier();
  const auto python = read_checkpoint_file(
      folder + "/rank" + std::to_string(group.rank()) + ".pt");
  for (const auto& [name, hook] : make_hooks(group)) {
    check_equal(name, train(group, hook), python);
  }
  PeriodicModelAverager periodic(
      group, PeriodicModelAveragerOptions().period(3).warmup_steps(2));
  check_equal("periodic", average(group, periodic), python);
  const int64_t small = group.size() == 3 ? 1 : 2;
  HierarchicalModelAverager hierarchical(
      group,
      HierarchicalModelAveragerOptions()
          .period_group_size({{1, small}, {2, small}, {4, group.size()}})
          .warmup_steps(1));
  check_equal("hierarchical", average(group, hierarchical), python);
}

void compare_on(int size) {
  python_with_torch();
  const SharedFolder folder;
  ranks(size, RankOptions().timeout(std::chrono::seconds(120)), [&] {
    compare(folder.path);
  });
}

TEST_CASE("on three ranks hooks and averagers have the bits of Python's") {
  compare_on(3);
}

TEST_CASE("on four ranks hooks and averagers have the bits of Python's") {
  compare_on(4);
}

} // namespace ddp::test::python_hooks_test
