#pragma once

#include <map>
#include <string>
#include <vector>

#include <launcher/cli/options.h>

namespace ddp {

/// What an option was given, and by what ("--grace" or "PET_GRACE").
struct OptionValue {
  std::string source;
  std::string text; // empty for a flag
};

/// The options that were given, by their names, with their last values.
using GivenOptions = std::map<std::string, OptionValue>;

/// Null if it was not given.
inline const OptionValue* find(
    const GivenOptions& given,
    const std::string& name) {
  const auto found = given.find(name);
  return found == given.end() ? nullptr : &found->second;
}

/// One option: all that parsing and --help know of it.
struct CommandOption {
  std::string group; // the heading under which it is listed
  std::vector<std::string> forms; // how it is written: "-t", "--tee"
  std::string value; // what its value is called; empty for a flag
  std::string help;
  /// Stores the value or throws LaunchError; null if the value only means
  /// something together with others (see options.cpp), or nothing.
  void (*store)(LaunchOptions&, const OptionValue&) = nullptr;

  /// The first long form, without its dashes.
  std::string name() const {
    return forms[forms[0][1] == '-' ? 0 : 1].substr(2);
  }
};

/// Settles how many nodes the job has, which one this is and where they meet,
/// by the options and a scheduler; options come first. Throws LaunchError
/// (exit code 2) where they exclude each other or do not tell.
void resolve_nodes(
    const GivenOptions& given,
    const EnvironmentLookup& lookup,
    LaunchOptions* options);

/// The secret of the nodes: that of --token, else of DDP_TOKEN.
void resolve_secret(
    const GivenOptions& given,
    const EnvironmentLookup& lookup,
    NodeOptions* nodes);

} // namespace ddp
