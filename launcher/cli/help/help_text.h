#pragma once

#include <string>
#include <vector>

#include <launcher/cli/options/option.h>

namespace ddp {

/// "-t" and "--tee": what an option is called on the command line.
std::vector<std::string> forms_of(const CommandOption& option);

/// What --help prints, at most `columns` wide where words allow it. help2man
/// and the shells' completion read it, too.
std::string help_text(size_t columns);

} // namespace ddp
