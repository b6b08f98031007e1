#include <tests/support/mpi_ranks.h>
#include <tests/support/skip.h>

#include <ddp/backends/mpi.h>

namespace ddp::test {

Command with_mpi(int size, const Command& command) {
  const char* launcher = std::getenv("DDP_MPIRUN");
  if (!launcher || !*launcher) {
    skip("there is no MPI, or no mpirun");
  }
  auto whole = command;
  whole.arguments.insert(
      whole.arguments.begin(), {launcher, "-n", std::to_string(size)});
  auto& variables = whole.environment;
  // Open MPI's options as variables, which other MPIs do not read.
  variables.insert({"OMPI_ALLOW_RUN_AS_ROOT", "1"});
  variables.insert({"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"});
  variables.insert({"OMPI_MCA_rmaps_base_oversubscribe", "1"});
  variables.insert({"OMPI_MCA_hwloc_base_binding_policy", "none"});
  variables.insert({"OMP_NUM_THREADS", "1"});
  return whole;
}

Outcome mpirun(int size, const Command& command) {
  return run(with_mpi(size, command), std::chrono::seconds(40));
}

std::optional<Outcome> mpi_ranks_outcome(
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

void mpi_ranks(int size, const std::function<void()>& body) {
  if (const auto outcome = mpi_ranks_outcome(size, body)) {
    output_of(*outcome);
  }
}

void require_passed(const Outcome& outcome, int size) {
  INFO(outcome.output);
  for (int rank = 0; rank < size; ++rank) {
    REQUIRE_THAT(
        outcome.output, Has("rank " + std::to_string(rank) + " passed"));
  }
}

std::optional<Outcome> mpi_ranks_that_leave(
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
