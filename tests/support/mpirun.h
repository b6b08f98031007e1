#pragma once

#include <tests/support/catch.h>
#include <tests/support/skip.h>

namespace ddp::test {

/// Skips the test case if mpirun is missing, or if the program `needed` was not
/// built because MPI is missing.
inline void need_mpirun(const std::string& needed = "") {
  if (run(Command{{"mpirun", "--version"}, {}}, kLong).exit_code != 0) {
    skip("there is no mpirun");
  }
  if (!needed.empty() && !std::filesystem::exists(program(needed))) {
    skip(needed + " was not built, since there is no MPI");
  }
}

/// Runs mpirun, which must exist, without other variables about ranks.
inline Outcome mpirun(
    std::vector<std::string> arguments,
    Environment environment = {}) {
  need_mpirun();
  arguments.insert(
      arguments.begin(),
      {"mpirun",
       "--allow-run-as-root",
       "--oversubscribe",
       "--bind-to",
       "none"});
  environment.insert(
      {{"OMP_NUM_THREADS", "1"},
       {"DDP_TIMEOUT", "30"},
       {"DDP_DEVICE", "cpu"},
       {"RANK", ""},
       {"WORLD_SIZE", ""},
       {"MASTER_ADDR", ""},
       {"MASTER_PORT", ""}});
  const auto outcome = run(Command{arguments, environment}, kLong);
  INFO(outcome.output);
  REQUIRE(!outcome.hung);
  return outcome;
}

/// Runs ranks, which must succeed; returns their output.
inline std::string output_of(
    const std::vector<std::string>& arguments,
    const Environment& environment = {}) {
  return output_of(mpirun(arguments, environment));
}

/// Requires that each of `size` ranks has printed its numbers and the correct
/// sum.
inline void check_lines(
    const std::string& output,
    int size,
    const char* backend) {
  INFO(output);
  for (int rank = 0; rank < size; ++rank) {
    const auto r = std::to_string(rank);
    const auto n = std::to_string(size);
    const auto sum = std::to_string(size * (size - 1) / 2);
    REQUIRE_THAT(
        output,
        Has("rank " + r + " of " + n + ", local " + r + " of " + n + ", " +
            backend + ", sum " + sum));
  }
}

} // namespace ddp::test
