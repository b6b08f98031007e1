// examples/resumable.cpp, stopped by a signal.
#include <tests/support/examples.h>

namespace ddp::test::resumable_test {

Command resumable(const std::string& folder) {
  return example(3, "resumable", {folder, "--epochs=4"});
}

/// What follows `start` in the output, up to the line's end.
std::string after(const std::string& output, const std::string& start) {
  const auto at = output.find(start);
  if (at == std::string::npos) {
    return "";
  }
  std::istringstream rest(output.substr(at + start.size()));
  std::string line;
  std::getline(rest, line);
  return line;
}

/// Runs from its beginning, or where it was stopped, to its end.
std::string parameters_of(const std::string& folder, const std::string& from) {
  const auto output = output_of(resumable(folder));
  REQUIRE(after(output, "goes on from step ") == from);
  return after(output, "parameters ");
}

/// Signals a run in its second epoch and returns the step at which it stopped.
std::string stop(const Command& command, int signal, int exit_code) {
  Process process(command);
  REQUIRE(process.wait_for("epoch 2", kLong));
  process.signal(signal);
  const auto outcome = process.finish(kLong);
  INFO(outcome.output);
  REQUIRE(outcome.exit_code == exit_code);
  const auto step = after(outcome.output, "stopped at step ");
  REQUIRE(step != "");
  return step;
}

FOLDER_TEST("a run that a signal stops goes on with the same bits") {
  const auto expected = parameters_of(folder / "whole", "");
  REQUIRE(expected.size() == 16);

  const auto stopped = folder / "ddprun";
  const auto step = stop(resumable(stopped), SIGTERM, 128 + SIGTERM);
  CHECK(parameters_of(stopped, step) == expected);
}

} // namespace ddp::test::resumable_test
