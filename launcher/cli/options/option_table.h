#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <launcher/cli/options/option.h>

namespace ddp {

/// All options of ddprun, group by group, as docs/launching.md lists them.
const std::vector<CommandOption>& option_table();

/// The number of options with a `store` function.
size_t stored_options();

/// The text of --help, which help2man and shell completion also parse.
std::string help_text();

/// A parsed command line.
struct Arguments {
  /// The options in the order given.
  std::vector<std::pair<const CommandOption*, OptionValue>> options;
  /// The program and its arguments.
  std::vector<std::string> command;
};

/// Parses a command line (without the name of ddprun): `--name value`,
/// `--name=value`, `-n value`, `-nvalue`. Underscores may replace dashes, and
/// unique prefixes of names are accepted. Parsing ends early after an option
/// that prints an answer. Throws LaunchError (exit code 2) for unknown and
/// ambiguous options, missing values, and values of flags.
Arguments split_arguments(const std::vector<std::string>& arguments);

/// Whether the option prints text instead of launching.
bool answers(const CommandOption& option);

/// The value of an option from its PET_ variable, such as PET_NPROC_PER_NODE,
/// as in torchrun. None if the variable is unset, or if the variable of a flag
/// is 0. Throws LaunchError if the variable of a flag is neither 1 nor 0.
std::optional<OptionValue> value_from_environment(
    const CommandOption& option,
    const EnvironmentLookup& lookup);

} // namespace ddp
