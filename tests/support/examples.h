#pragma once

#include <tests/support/catch.h>
#include <tests/support/mpirun.h>
#include <tests/support/process.h>

#include <cmath>
#include <regex>
#include <string>
#include <vector>

namespace ddp::test {

/// Runs an example with ddprun as that many ranks on the CPU, over gloo.
inline Outcome run_example(
    int ranks,
    const std::string& name,
    const std::vector<std::string>& arguments) {
  std::vector<std::string> words{
      variable("DDPRUN"),
      "--nproc-per-node",
      std::to_string(ranks),
      variable("DDP_EXAMPLES") + "/" + name};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run(
      Command{
          words,
          {{"DDP_BACKEND", "gloo"},
           {"CUDA_VISIBLE_DEVICES", ""},
           {"OMP_NUM_THREADS", "1"}}},
      kLong);
}

/// The output of an example that shall end well.
inline std::string output_of_example(
    int ranks,
    const std::string& name,
    const std::vector<std::string>& arguments) {
  const auto outcome = run_example(ranks, name, arguments);
  INFO(outcome.output);
  REQUIRE(outcome.exit_code == 0);
  return outcome.output;
}

/// What the pattern's groups match, for each match.
inline std::vector<std::vector<std::string>> matches(
    const std::string& text,
    const std::string& pattern) {
  const std::regex form(pattern);
  std::vector<std::vector<std::string>> all;
  for (std::sregex_iterator i(text.begin(), text.end(), form), end; i != end;
       ++i) {
    auto& groups = all.emplace_back();
    for (size_t group = 1; group < i->size(); ++group) {
      groups.push_back((*i)[group]);
    }
  }
  return all;
}

/// Equal but for sums in another order, which round elsewhere.
inline bool is_near(double value, double expected, double tolerance = 1e-5) {
  return std::abs(value - expected) <= tolerance * std::abs(expected);
}

} // namespace ddp::test
