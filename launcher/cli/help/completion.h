#pragma once

#include <string>

#include <launcher/cli/options/option.h>

namespace ddp {

/// The script by which bash or zsh completes ddprun's options and, behind them,
/// the program's own command line. Throws LaunchError for another shell.
std::string completion_script(const OptionValue& shell);

} // namespace ddp
