// Communication hooks over MPI.
#include <tests/support/catch.h>
#include <tests/support/hook_training.h>
#include <tests/support/mpi_ranks.h>
#include <tests/support/nets.h>
#include <tests/support/skip.h>

#include <ddp/backends/mpi.h>
#include <ddp/comm_hooks/default_hooks.h>
#include <ddp/comm_hooks/power_sgd_hook.h>
#include <ddp/comm_hooks/quantization_hook.h>
#include <ddp/reducer.h>

namespace mpi_hooks_test {

using ddp::CommHook;
using ddp::test::backward_to;
using ddp::test::hook_gradients;

TEST_CASE("hooks average over MPI, those of several collectives too") {
  const auto reason = ddp::backends::mpi::unavailable();
  if (!reason.empty()) {
    ddp::test::skip(reason);
  }
  ddp::test::mpi_ranks(3, [] {
    const auto group =
        ddp::init_process_group(ddp::ProcessGroupOptions().backend("mpi"));
    const auto full_rank = ddp::PowerSGDOptions() // so that it is exact
                               .start_iteration(2)
                               .matrix_approximation_rank(100)
                               .min_compression_rate(0);
    for (const auto& hook : std::vector<std::shared_ptr<CommHook>>{
             ddp::bf16_compress_hook(),
             std::make_shared<ddp::PowerSGDHook>(full_rank),
             std::make_shared<ddp::QuantizationHook>(),
             std::make_shared<ddp::HookChain>(
                 std::vector<std::shared_ptr<CommHook>>{
                     std::make_shared<ddp::AllReduceHook>()})}) {
      const auto parameters = ddp::test::hook_parameters();
      ddp::Reducer reducer(parameters, group, ddp::test::hook_options(hook));
      for (int step = 0; step < 4; ++step) {
        backward_to(parameters, hook_gradients(step, group.rank()));
        const auto means = ddp::test::hook_means(step, group.size());
        for (size_t i = 0; i < parameters.size(); ++i) {
          const auto& grad = parameters[i].grad();
          REQUIRE((grad - means[i]).abs().max().item<double>() < 0.03);
          REQUIRE(ddp::test::equal_on_all(group, grad));
        }
      }
    }
  });
}

} // namespace mpi_hooks_test
