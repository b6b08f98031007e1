#pragma once

#include <tests/support/catch.h>
#include <tests/support/skip.h>

namespace ddp::test {

using Words = std::vector<std::string>;

/// The command of ddprun that runs a program as this number of ranks on the
/// CPU, over gloo.
inline Command with_ddprun(
    int ranks,
    const Words& program,
    const Words& options = {}) {
  Words words{variable("DDPRUN"), "--nproc-per-node", std::to_string(ranks)};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), program.begin(), program.end());
  return {
      words,
      {{"DDP_BACKEND", "gloo"},
       {"CUDA_VISIBLE_DEVICES", ""},
       {"OMP_NUM_THREADS", "1"}}};
}

/// The output of a command, which must succeed.
inline std::string output_of(
    const Command& command,
    std::chrono::seconds timeout = kLong) {
  return output_of(run(command, timeout));
}

/// The output of a command that must have failed.
inline std::string refusal_of(const Outcome& outcome) {
  INFO(outcome.output);
  REQUIRE(outcome.exit_code != 0);
  return outcome.output;
}

/// The path of a program of tests/parity.
inline std::string parity_program(const std::string& name) {
  return variable("DDP_SOURCE") + "/tests/parity/" + name;
}

/// The output of the Python with torch; skips the test case if no such Python
/// exists.
inline std::string python_output(Words arguments) {
  arguments.insert(arguments.begin(), {python_with_torch(), "-W", "ignore"});
  return output_of(
      Command{arguments, {{"OMP_NUM_THREADS", "1"}}},
      std::chrono::seconds(100));
}

} // namespace ddp::test
