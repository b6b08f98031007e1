#pragma once

#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/support/containers.h>
#include <tests/support/catch.h>
#include <tests/support/ivalue_text.h>

namespace ddp::test {

/// The output of a ddp-checkpoint that ends with this exit code.
inline std::string output_of(
    int exit_code,
    std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), variable("DDP_CHECKPOINT"));
  return output_of(run(Command{arguments, {}}, kLong), exit_code);
}

/// The message of a run that ends with exit code 2.
inline std::string trouble(const std::vector<std::string>& arguments) {
  const auto output = output_of(2, arguments);
  INFO(output);
  REQUIRE(output.rfind("ddp-checkpoint: ", 0) == 0);
  REQUIRE(output.find('\n') == output.size() - 1);
  return output;
}

/// Writes a checkpoint of one tensor and a number.
inline std::string write_training(
    const TemporaryFolder& folder,
    const std::string& name,
    const at::Tensor& w,
    const c10::IValue& epoch = 3) {
  write_checkpoint_file(
      folder / name, dict({{"model", dict({{"w", w}})}, {"epoch", epoch}}));
  return folder / name;
}

} // namespace ddp::test
