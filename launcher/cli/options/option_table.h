#pragma once

#include <vector>

#include <launcher/cli/options/option.h>

namespace ddp {

/// All options of ddprun, group by group.
const std::vector<CommandOption>& option_table();

/// The heading of a group.
const char* heading_of(OptionGroup group);

/// The options, all of one group.
std::vector<CommandOption> in_group(
    OptionGroup group,
    std::vector<CommandOption> options);

/// One that variables do not give.
CommandOption from_command_line(CommandOption option);

/// The parts of the table, by the files that they are in.
std::vector<CommandOption> rank_options();
std::vector<CommandOption> program_options();
std::vector<CommandOption> node_options();
std::vector<CommandOption> placement_options();
std::vector<CommandOption> failure_options();
std::vector<CommandOption> output_options();
std::vector<CommandOption> torchrun_options();
std::vector<CommandOption> other_options();

} // namespace ddp
