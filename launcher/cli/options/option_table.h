#pragma once

#include <string>
#include <vector>

#include <launcher/cli/options/option.h>

namespace ddp {

/// All options of ddprun, group by group, as docs/launching.md lists them.
const std::vector<CommandOption>& option_table();

/// How many of them store a value by themselves.
size_t stored_options();

/// What --help prints. help2man and the shells' completion read it, too.
std::string help_text();

} // namespace ddp
