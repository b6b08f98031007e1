#pragma once

#include <map>
#include <string>
#include <vector>

#include <launcher/cli/options.h>
#include <tests/launcher/words.h>

namespace ddp::test {

/// An environment of these variables alone.
EnvironmentLookup environment_of(std::map<std::string, std::string> variables);

/// What `ddprun arguments...` means in this environment.
LaunchOptions parse(
    const std::vector<std::string>& arguments,
    const std::map<std::string, std::string>& environment = {});

/// The message with which that is refused as wrong usage, "no error" for none.
std::string usage_error_of(
    const std::vector<std::string>& arguments,
    const std::map<std::string, std::string>& environment = {});

/// Checks that `ddprun line` is refused as wrong usage, with this text.
void check_refused(
    const std::string& line,
    const std::string& text,
    const std::map<std::string, std::string>& environment = {});

} // namespace ddp::test
