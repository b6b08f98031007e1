#include <launcher/cli/options.h>

#include <algorithm>
#include <cstdlib>

#include <common/scheduler/rank_environment.h>
#include <launcher/cli/combinations.h>
#include <launcher/cli/help/help_text.h>
#include <launcher/cli/options/arguments.h>
#include <launcher/cli/options/option_table.h>
#include <launcher/cli/options/option_values.h>

namespace ddp {
namespace {

std::string answer_to(
    const CommandOption& option,
    const EnvironmentLookup& lookup) {
  if (option.name() == "version") {
    return "ddprun " DDP_VERSION "\n";
  }
  const int columns = std::atoi(lookup("COLUMNS").value_or("").c_str());
  return help_text(columns > 0 ? static_cast<size_t>(columns) : 80);
}

void apply(
    const CommandOption& option,
    const OptionValue& value,
    GivenOptions* given,
    LaunchOptions* options) {
  const std::string name = option.name();
  (*given)[name] = value;
  options->remote.given.emplace_back(
      name, "--" + name + (option.value.empty() ? "" : "=" + value.text));
  if (option.store != nullptr) {
    option.store(*options, value);
  }
}

void read_environment(
    const EnvironmentLookup& lookup,
    GivenOptions* given,
    LaunchOptions* options) {
  for (const CommandOption& option : option_table()) {
    if (given->count(option.name()) != 0) {
      continue;
    }
    if (const auto value = value_from_environment(option, lookup)) {
      apply(option, *value, given, options);
    }
  }
}

/// What stands after the program is the program's.
void note_late_ranks(const GivenOptions& given, LaunchOptions* options) {
  const auto& words = options->command;
  const auto is_ours = [](std::string word) {
    std::replace(word.begin(), word.end(), '_', '-');
    return word.rfind("--nproc-per-node", 0) == 0;
  };
  if (given.count("nproc-per-node") == 0 &&
      std::any_of(words.begin() + 1, words.end(), is_ours)) {
    options->notes.push_back(
        "--nproc-per-node comes after " + words.front() +
        ", which gets it as an argument: one rank is started. Put it before "
        "the program");
  }
}

} // namespace

LaunchOptions parse_options(
    int argc,
    const char* const* argv,
    const EnvironmentLookup& lookup) {
  LaunchOptions options;
  GivenOptions given;
  Arguments arguments = split_arguments({argv + 1, argv + argc});
  for (const auto& [option, value] : arguments.options) {
    if (answers(*option)) {
      options.answer = answer_to(*option, lookup);
      return options;
    }
    apply(*option, value, &given, &options);
  }
  read_environment(lookup, &given, &options);
  options.has_starter = lookup(kStarterVariable) == "1";
  combine_options(given, lookup, &options);
  options.command = std::move(arguments.command);
  const bool has_program =
      !options.command.empty() && !options.command.front().empty();
  if (!has_program) {
    usage_error("no program to run was given");
  }
  note_late_ranks(given, &options);
  return options;
}

LaunchOptions parse_options(int argc, const char* const* argv) {
  return parse_options(argc, argv, process_environment);
}

std::optional<std::string> rank_variable(
    const LaunchOptions& options,
    const EnvironmentLookup& lookup,
    const char* name) {
  auto value = lookup(name);
  for (const auto& [variable, text] : options.env) {
    if (variable == name) {
      value = text;
    }
  }
  return value;
}

std::optional<std::string> process_environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::optional<std::string>(value) : std::nullopt;
}

} // namespace ddp
