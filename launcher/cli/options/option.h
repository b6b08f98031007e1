#pragma once

#include <map>
#include <string>
#include <vector>

#include <launcher/cli/options.h>

namespace ddp {

/// The value of an option, and its source ("--grace" or "PET_GRACE").
struct OptionValue {
  std::string source;
  std::string text; // empty for a flag
};

/// The options that were given, by their names, with their last values.
using GivenOptions = std::map<std::string, OptionValue>;

/// The value of an option; null if it was not given.
inline const OptionValue* find(
    const GivenOptions& given,
    const std::string& name) {
  const auto found = given.find(name);
  return found == given.end() ? nullptr : &found->second;
}

/// One option, for parsing and --help.
struct CommandOption {
  std::string group; // the heading under which it is listed
  std::vector<std::string> forms; // spellings: "-t", "--tee"
  std::string value; // name of the value; empty for a flag
  std::string help;
  /// Stores the value or throws LaunchError. Null if the value has no meaning
  /// on its own (see options.cpp).
  void (*store)(LaunchOptions&, const OptionValue&) = nullptr;

  /// The first long form, without its dashes.
  std::string name() const {
    return forms[forms[0][1] == '-' ? 0 : 1].substr(2);
  }
};

/// Resolves the number of nodes, the number of this node and the endpoint from
/// the options and a scheduler; options take precedence. Throws LaunchError
/// (exit code 2) if the options and the scheduler contradict each other or are
/// not sufficient.
void resolve_nodes(
    const GivenOptions& given,
    const EnvironmentLookup& lookup,
    LaunchOptions* options);

/// Sets the secret of the nodes: from --token, otherwise from DDP_TOKEN.
void resolve_secret(
    const GivenOptions& given,
    const EnvironmentLookup& lookup,
    NodeOptions* nodes);

} // namespace ddp
