#include <ddp/environment/environment.h>
#include <ddp/environment/misspelt_variables.h>
#include <tests/fuzz/variables.h>

#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Variables variables(data, size);
  try {
    ddp::read_launch_environment({}, variables);
  } catch (const c10::ValueError&) {
  }
  try {
    ddp::complete_options({}, variables);
  } catch (const c10::ValueError&) {
  }
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::vector<const char*> all{text.c_str(), nullptr};
  ddp::detail::misspelt_variable(all.data());
  return 0;
}
