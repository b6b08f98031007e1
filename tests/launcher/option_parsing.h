#pragma once

#include <tests/support/catch_plain.h>

#include <common/scheduler/launch_error.h>
#include <launcher/cli/options.h>
#include <tests/launcher/words.h>
#include <tests/support/launch_variables.h>

namespace ddp::test {

/// What `ddprun arguments...` means in this environment.
inline LaunchOptions parse(
    const std::vector<std::string>& arguments,
    const Variables& environment = {}) {
  std::vector<const char*> argv = {"ddprun"};
  for (const std::string& argument : arguments) {
    argv.push_back(argument.c_str());
  }
  return parse_options(
      static_cast<int>(argv.size()), argv.data(), environment_of(environment));
}

/// The message with which that is refused as wrong usage, "no error" for none.
inline std::string usage_error_of(
    const std::vector<std::string>& arguments,
    const Variables& environment = {}) {
  try {
    parse(arguments, environment);
  } catch (const LaunchError& error) {
    const bool one_line =
        std::string(error.what()).find('\n') == std::string::npos;
    return error.exit_code() == kExitUsage && one_line ? error.what()
                                                       : "not a usage error";
  }
  return "no error";
}

/// Checks that `ddprun line` is refused as wrong usage, with this text.
inline void check_refused(
    const std::string& line,
    const std::string& text,
    const Variables& environment = {}) {
  CAPTURE(line);
  CHECK_THAT(usage_error_of(words(line), environment), Has(text));
}

} // namespace ddp::test
