#include <common/scheduler/launch_error.h>
#include <common/scheduler/scheduler_environment.h>
#include <launcher/cli/options.h>
#include <tests/fuzz/variables.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Variables variables(data, size);
  const auto lookup = [&](const std::string& name) {
    // Its value is the path of a file.
    return name == "PET_TOKEN" ? std::nullopt : variables(name);
  };
  try {
    const char* const words[] = {"ddprun", "./train"};
    ddp::parse_options(2, words, lookup);
  } catch (const ddp::LaunchError&) {
  }
  try {
    if (const auto found = ddp::detect_scheduler(lookup)) {
      ddp::check_scheduler(*found, "./train");
    }
  } catch (const ddp::LaunchError&) {
  }
  return 0;
}
