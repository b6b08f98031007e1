#pragma once

#include <string>
#include <vector>

#include <launcher/cli/options.h>
#include <tests/launcher/words.h>
#include <tests/support/launch_variables.h>

namespace ddp::test {

/// What `ddprun arguments...` means in this environment.
LaunchOptions parse(
    const std::vector<std::string>& arguments,
    const Variables& environment = {});

/// The message with which that is refused as wrong usage, "no error" for none.
std::string usage_error_of(
    const std::vector<std::string>& arguments,
    const Variables& environment = {});

/// Checks that `ddprun line` is refused as wrong usage, with this text.
void check_refused(
    const std::string& line,
    const std::string& text,
    const Variables& environment = {});

} // namespace ddp::test
