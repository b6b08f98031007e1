#pragma once

#include <string>
#include <vector>

#include <launcher/cli/options/option.h>

namespace ddp {

/// The spellings of an option, the short one first: "-t", "--tee".
std::vector<std::string> forms_of(const CommandOption& option);

/// The choices of an option, one by one.
std::vector<std::string> choices_of(const CommandOption& option);

/// Breaks a text into lines of at most `width` characters, at spaces.
std::vector<std::string> wrap(const std::string& text, size_t width);

} // namespace ddp
