#pragma once

#include <string>
#include <utility>
#include <vector>

#include <launcher/cli/options/option.h>

namespace ddp {

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

} // namespace ddp
