// Communication hooks over MPI.
#include <tests/support/catch.h>
#include <tests/support/hook_training.h>
#include <tests/support/mpi_ranks.h>
#include <tests/support/nets.h>
#include <tests/support/skip.h>

#include <ddp/backends/mpi.h>
#include <ddp/comm_hooks/default_hooks.h>
#include <ddp/comm_hooks/power_sgd_hook.h>
#include <ddp/reducer.h>

namespace ddp::test::mpi_hooks_test {

TEST_CASE("hooks average over MPI, those of several collectives too") {
  const auto reason = backends::mpi::unavailable();
  if (!reason.empty()) {
    skip(reason);
  }
  mpi_ranks(3, [] {
    const auto group = init_process_group(ProcessGroupOptions().backend("mpi"));
    const auto full_rank = PowerSGDOptions() // so that it is exact
                               .start_iteration(2)
                               .matrix_approximation_rank(100)
                               .min_compression_rate(0);
    for (const auto& hook : std::vector<std::shared_ptr<CommHook>>{
             bf16_compress_hook(),
             std::make_shared<PowerSGDHook>(full_rank),
             std::make_shared<QuantizationHook>(),
             std::make_shared<HookChain>(std::vector<std::shared_ptr<CommHook>>{
                 std::make_shared<AllReduceHook>()})}) {
      const auto parameters = hook_parameters();
      Reducer reducer(parameters, group, hook_options(hook));
      for (int step = 0; step < 4; ++step) {
        backward_to(parameters, hook_gradients(step, group.rank()));
        const auto means = hook_means(step, group.size());
        for (size_t i = 0; i < parameters.size(); ++i) {
          const auto& grad = parameters[i].grad();
          REQUIRE((grad - means[i]).abs().max().item<double>() < 0.03);
          REQUIRE(equal_on_all(group, grad));
        }
      }
    }
  });
}

} // namespace ddp::test::mpi_hooks_test
