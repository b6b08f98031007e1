#include <launcher/cli/options.h>

#include <algorithm>
#include <cstdlib>

#include <common/processors.h>
#include <common/scheduler/rank_environment.h>
#include <launcher/cli/options/option.h>
#include <launcher/cli/options/option_table.h>
#include <launcher/cli/options/option_values.h>

namespace ddp {
namespace {

std::string answer_to(const CommandOption& option) {
  return option.name() == "version" ? "ddprun " DDP_VERSION "\n" : help_text();
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

void choose_kind(const GivenOptions& given, LaunchOptions* options) {
  const OptionValue* module = find(given, "module");
  const OptionValue* no_python = find(given, "no-python");
  if (find(given, "run-path")) { // wins in torchrun too
    options->kind = ProgramKind::kScript;
  } else if (module && no_python) {
    usage_error(
        module->source + " and " + no_python->source +
        " cannot be combined: a module is run by Python");
  } else if (module) {
    options->kind = ProgramKind::kModule;
  } else if (no_python) {
    options->kind = ProgramKind::kExecutable;
  }
}

void count_ranks(
    const GivenOptions& given,
    const EnvironmentLookup& lookup,
    LaunchOptions* options) {
  const auto devices = rank_variable(*options, lookup, "CUDA_VISIBLE_DEVICES");
  if (const OptionValue* ranks = find(given, "nproc-per-node")) {
    options->nproc_per_node = rank_count(*ranks, devices);
  }
  if (!options->virtual_local_rank) {
    return;
  }
  const int gpus = visible_gpus(devices ? devices->c_str() : nullptr);
  if (options->nproc_per_node > gpus && (gpus > 0 || devices)) {
    usage_error(
        given.at("virtual-local-rank").source + ": " +
        std::to_string(options->nproc_per_node) + " ranks, but " +
        std::to_string(gpus) + " GPUs are visible" +
        (devices ? " (of '" + *devices + "')" : "") +
        ", and each rank needs a separate GPU");
  }
}

void check_output(
    const GivenOptions& given,
    const EnvironmentLookup& lookup,
    LaunchOptions* options) {
  OutputOptions* output = &options->output;
  for (const char* name :
       {"redirects",
        "tee",
        "local-ranks-filter",
        "duplicate-stdout-filters",
        "duplicate-stderr-filters",
        "log-line-prefix"}) {
    const OptionValue* other = find(given, name);
    if (output->mode == OutputMode::kRaw && other != nullptr) {
      usage_error(
          other->source + " and " + given.at("output").source +
          " raw cannot be combined: raw output does not pass through ddprun");
    }
  }
  const auto prefix = lookup("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
  if (!output->line_prefix && prefix && !prefix->empty()) {
    output->line_prefix = *prefix;
  }
  const auto& shown = output->shown_ranks;
  if (options->remote.hosts.empty() && !shown.empty() &&
      *shown.begin() >= options->nproc_per_node) {
    options->notes.push_back(
        given.at("local-ranks-filter").source +
        " selects none of the local ranks, which are 0 to " +
        std::to_string(options->nproc_per_node - 1) + ": no output is shown");
  }
}

// Resolves values that depend on several options: ranks, nodes, the kind of
// program, the prefix of lines. Notes options without an effect.
void combine_options(
    const GivenOptions& given,
    const EnvironmentLookup& lookup,
    LaunchOptions* options) {
  if (options->standalone) { // chooses all that torchrun's does
    options->master_addr = LaunchOptions().master_addr;
    options->master_port = 0;
    options->run_id.clear();
  }
  choose_kind(given, options);
  if (options->remote.hosts.empty()) {
    resolve_nodes(given, lookup, options);
    count_ranks(given, lookup, options);
  } else { // each host's ddprun does that
    resolve_hosts(given, *options);
    resolve_secret(given, lookup, &options->nodes);
  }
  check_output(given, lookup, options);
}

/// Words after the program are its arguments.
void note_late_ranks(const GivenOptions& given, LaunchOptions* options) {
  const auto& words = options->command;
  const auto is_ours = [](std::string word) {
    std::replace(word.begin(), word.end(), '_', '-');
    return word.rfind("--nproc-per-node", 0) == 0;
  };
  if (given.count("nproc-per-node") == 0 &&
      std::any_of(words.begin() + 1, words.end(), is_ours)) {
    options->notes.push_back(
        "--nproc-per-node follows " + words.front() +
        ", so it is an argument of the program, and one rank is started. Put "
        "it before the program");
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
      options.answer = answer_to(*option);
      return options;
    }
    apply(*option, value, &given, &options);
  }
  read_environment(lookup, &given, &options);
  options.has_remote_launcher = lookup(kRemoteLauncherVariable) == "1";
  combine_options(given, lookup, &options);
  options.command = std::move(arguments.command);
  const bool has_program =
      !options.command.empty() && !options.command.front().empty();
  if (!has_program) {
    usage_error("the program to run is missing");
  }
  note_late_ranks(given, &options);
  return options;
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
