#pragma once

#include <tests/support/ranks.h>
#include <tests/support/skip.h>

#include <ddp/backends/mpi.h>

namespace ddp::test {

/// The command that runs a program on `size` ranks under mpirun; skips the test
/// case if the machine has no MPI.
inline Command with_mpi(int size, const Command& command) {
  const char* launcher = std::getenv("DDP_MPIRUN");
  if (!launcher || !*launcher) {
    skip("there is no MPI, or no mpirun");
  }
  auto whole = command;
  whole.arguments.insert(
      whole.arguments.begin(), {launcher, "-n", std::to_string(size)});
  auto& variables = whole.environment;
  // Open MPI's options as variables, which other implementations do not read.
  variables.insert({"OMPI_ALLOW_RUN_AS_ROOT", "1"});
  variables.insert({"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"});
  variables.insert({"OMPI_MCA_rmaps_base_oversubscribe", "1"});
  variables.insert({"OMPI_MCA_hwloc_base_binding_policy", "none"});
  variables.insert({"OMP_NUM_THREADS", "1"});
  return whole;
}

inline Outcome mpirun(int size, const Command& command) {
  return run(with_mpi(size, command), std::chrono::seconds(40));
}

/// Like `ranks`, but under mpirun: runs `body` on `size` ranks, each of which
/// ends like `main`, and returns how mpirun ended; nullopt in a rank.
inline std::optional<Outcome> mpi_ranks_outcome(
    int size,
    const std::function<void()>& body) {
  const auto again = command_of_rank(body, std::exit);
  if (!again) {
    return std::nullopt;
  }
  auto outcome = mpirun(size, *again);
  INFO("mpirun:\n" << outcome.output);
  REQUIRE(!outcome.hung);
  return outcome;
}

/// Like `mpi_ranks`, but also checks that all ranks pass.
inline void mpi_ranks(int size, const std::function<void()>& body) {
  if (const auto outcome = mpi_ranks_outcome(size, body)) {
    output_of(*outcome);
  }
}

/// A RANKS_TEST under mpirun, without a group.
#define MPI_TEST(...) DDP_TEST_BY(run_mpi_test, (), __VA_ARGS__)
inline void run_mpi_test(void (*body)(), const char* /*title*/, int size = 3) {
  mpi_ranks(size, body);
}

/// The group of an MPI_TEST.
inline ProcessGroup mpi_group() {
  return init_process_group(
      ProcessGroupOptions().backend("mpi").timeout(std::chrono::seconds(20)));
}

/// Requires that each rank has printed "rank N passed".
inline void require_passed(const Outcome& outcome, int size) {
  INFO(outcome.output);
  for (int rank = 0; rank < size; ++rank) {
    REQUIRE_THAT(
        outcome.output, Has("rank " + std::to_string(rank) + " passed"));
  }
}

/// Like `mpi_ranks`, for ranks that leave an operation, so that mpirun ends
/// with another exit code. Requires that each rank reports that it passed.
/// Returns how mpirun ended.
inline std::optional<Outcome> mpi_ranks_that_leave(
    int size,
    const std::function<void()>& body) {
  const auto outcome = mpi_ranks_outcome(size, [&] {
    const auto world = backends::mpi::library().world(std::chrono::minutes(1));
    body();
    std::cout << "rank " + std::to_string(world->rank()) + " passed\n"
              << std::flush;
  });
  if (outcome) {
    require_passed(*outcome, size);
  }
  return outcome;
}

} // namespace ddp::test
