#pragma once

#include <tests/support/catch_plain.h>

#include <common/scheduler/launch_error.h>
#include <launcher/cli/options.h>
#include <tests/launcher/words.h>
#include <tests/support/launch_variables.h>

namespace ddp::test {

/// "EXIT CODE: TEXT" of the LaunchError that `call` throws, or "no error".
template <typename Call>
std::string launch_error_of(const Call& call) {
  try {
    call();
  } catch (const LaunchError& error) {
    return std::to_string(error.exit_code()) + ": " + error.what();
  }
  return "no error";
}

/// The options of `ddprun arguments...` in this environment.
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

/// The usage error of `ddprun arguments...`.
inline std::string usage_error_of(
    const std::vector<std::string>& arguments,
    const Variables& environment = {}) {
  const auto error = launch_error_of([&] { parse(arguments, environment); });
  CHECK((error.rfind("2: ", 0) == 0 || error == "no error"));
  CHECK(error.find('\n') == std::string::npos);
  return error;
}

/// Checks that `ddprun line` is a usage error whose message contains `text`.
inline void check_refused(
    const std::string& line,
    const std::string& text,
    const Variables& environment = {}) {
  CAPTURE(line);
  CHECK_THAT(usage_error_of(words(line), environment), Has(text));
}

} // namespace ddp::test
