#pragma once

#include <string>

#include <launcher/cli/options.h>

namespace ddp {

/// What an option was given, and by what ("--grace" or "PET_GRACE").
struct OptionValue {
  std::string source;
  std::string text; // empty for a flag
};

/// One option: all that parsing and --help know of it.
struct CommandOption {
  const char* name; // without the two dashes
  const char* value; // what its value is called; null for a flag
  const char* help;
  /// Stores the value or throws LaunchError; null where the value only means
  /// something together with others (see combinations.h).
  void (*apply)(LaunchOptions&, const OptionValue&) = nullptr;
  char letter = '\0'; // of the short form
  const char* alias = nullptr; // another long name
  bool from_environment = true; // read from PET_<NAME> as well
  bool answers = false; // prints something instead of launching
  const char* group = ""; // the heading under which it is listed
};

/// `--name`.
inline std::string long_form(const CommandOption& option) {
  return std::string("--") + option.name;
}

} // namespace ddp
