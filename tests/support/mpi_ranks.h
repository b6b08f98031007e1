#pragma once

#include <tests/support/ranks.h>

namespace ddp::test {

/// That runs a program on `size` ranks under mpirun; skips the test case where
/// the machine has no MPI.
Command with_mpi(int size, const Command& command);

Outcome mpirun(int size, const Command& command);

/// As `ranks`, but under mpirun: runs `body` on `size` ranks, each of which
/// ends as from `main`, and returns how mpirun ended; nothing in a rank.
std::optional<Outcome> mpi_ranks_outcome(
    int size,
    const std::function<void()>& body);

/// The same, and checks that all ranks pass.
void mpi_ranks(int size, const std::function<void()>& body);

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

/// Requires that each rank has said "rank N passed".
void require_passed(const Outcome& outcome, int size);

/// As `mpi_ranks`, of ranks that leave an operation, and so mpirun with another
/// exit code: each says that it passed. Returns how mpirun ended.
std::optional<Outcome> mpi_ranks_that_leave(
    int size,
    const std::function<void()>& body);

} // namespace ddp::test
