#pragma once

#include <vector>

#include <launcher/cli/options/option.h>

namespace ddp {

/// All options of ddprun, group by group.
const std::vector<CommandOption>& option_table();

/// Those of its group of several nodes.
std::vector<CommandOption> node_options();

/// One that variables do not give.
inline CommandOption from_command_line(CommandOption option) {
  option.from_environment = false;
  return option;
}

} // namespace ddp
