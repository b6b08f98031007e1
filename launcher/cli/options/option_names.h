#pragma once

#include <string>

#include <launcher/cli/options/option.h>

namespace ddp {

/// The option of this long name (without dashes in front): dashes and
/// underscores are alike, and a beginning that only one option has is enough.
/// Throws LaunchError where there is none or several, with what may have been
/// meant.
const CommandOption& option_of_name(const std::string& name);

/// The option of a short form; throws as above.
const CommandOption& option_of_letter(char letter);

/// How many characters have to be inserted, dropped or replaced to make one
/// text of the other.
size_t edit_distance(const std::string& first, const std::string& second);

} // namespace ddp
