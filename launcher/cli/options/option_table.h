#pragma once

#include <initializer_list>
#include <vector>

#include <launcher/cli/options/option.h>

namespace ddp {

/// All options of ddprun, group by group.
const std::vector<CommandOption>& option_table();

/// The heading of a group.
const char* heading_of(OptionGroup group);

/// Parts of the table, one behind the other.
std::vector<CommandOption> joined(
    std::initializer_list<std::vector<CommandOption> (*)()> parts);

/// The parts of the table, by the files that they are in.
std::vector<CommandOption> rank_options();
std::vector<CommandOption> program_options();
std::vector<CommandOption> node_options();
std::vector<CommandOption> placement_and_failure_options();
std::vector<CommandOption> output_and_other_options();

} // namespace ddp
