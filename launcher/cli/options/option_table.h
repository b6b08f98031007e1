#pragma once

#include <optional>
#include <string>
#include <utility>

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

/// A command line, taken apart.
struct Arguments {
  /// In the order given.
  std::vector<std::pair<const CommandOption*, OptionValue>> options;
  /// The program and what follows it.
  std::vector<std::string> command;
};

/// Takes a command line (without ddprun's own name) apart: `--name value`,
/// `--name=value`, `-n value`, `-nvalue`, with underscores for dashes and the
/// unique beginning of a name. Ends early after an option that prints an
/// answer. Throws LaunchError (exit code 2) on unknown and ambiguous options,
/// missing values and values that flags do not take.
Arguments split_arguments(const std::vector<std::string>& arguments);

/// Whether it prints something instead of launching.
bool answers(const CommandOption& option);

/// What PET_NPROC_PER_NODE and so on, as in torchrun, give for an option: none
/// where its variable is unset, and where it is 0 for a flag. Throws
/// LaunchError for a flag that is neither 1 nor 0.
std::optional<OptionValue> value_from_environment(
    const CommandOption& option,
    const EnvironmentLookup& lookup);

} // namespace ddp
