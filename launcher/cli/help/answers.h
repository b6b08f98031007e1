#pragma once

#include <string>

#include <launcher/cli/options/option.h>

namespace ddp {

/// What --help prints, at most `columns` wide where words allow it.
std::string help_text(size_t columns);

/// The manual page of ddprun, in roff.
std::string man_page();

/// The script by which bash or zsh completes ddprun's options and, behind them,
/// the program's own command line. Throws LaunchError for another shell.
std::string completion_script(const OptionValue& shell);

} // namespace ddp
