// Communication hooks over MPI.
#include <tests/support/hook_training.h>
#include <tests/support/mpi_ranks.h>
#include <tests/support/skip.h>

#include <ddp/backends/mpi.h>
#include <ddp/comm_hooks/default_hooks.h>

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
      check_mean(group, hook, 0.03);
    }
  });
}

} // namespace ddp::test::mpi_hooks_test
