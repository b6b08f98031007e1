#include <launcher/cli/combinations.h>

#include <common/processors.h>
#include <launcher/cli/nodes.h>
#include <launcher/cli/options/option_values.h>
#include <launcher/cli/rank_count.h>
#include <launcher/remote/hosts.h>

namespace ddp {
namespace {

const OptionValue* find(const GivenOptions& given, const std::string& name) {
  const auto found = given.find(name);
  return found == given.end() ? nullptr : &found->second;
}

void choose_kind(const GivenOptions& given, LaunchOptions* options) {
  const OptionValue* module = find(given, "module");
  const OptionValue* no_python = find(given, "no-python");
  if (find(given, "run-path")) { // wins in torchrun too
    options->kind = ProgramKind::kScript;
  } else if (module && no_python) {
    usage_error(
        module->source + " and " + no_python->source +
        " exclude each other: a module is run by Python");
  } else if (module) {
    options->kind = ProgramKind::kModule;
  } else if (no_python) {
    options->kind = ProgramKind::kExecutable;
  }
}

// What CUDA_VISIBLE_DEVICES will be for the ranks.
std::optional<std::string> devices_for_ranks(
    const EnvironmentLookup& lookup,
    const LaunchOptions& options) {
  return options.devices ? options.devices : lookup("CUDA_VISIBLE_DEVICES");
}

void count_ranks(
    const GivenOptions& given,
    const EnvironmentLookup& lookup,
    LaunchOptions* options) {
  const auto devices = devices_for_ranks(lookup, *options);
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
        ", and each rank is to have its own");
  }
}

bool has_streams(const StreamChoice& choice) {
  return choice.all != 0 || !choice.ranks.empty();
}

void refuse_with_raw(const GivenOptions& given, const char* name) {
  if (const OptionValue* other = find(given, name)) {
    usage_error(
        other->source + " and " + given.at("output").source +
        " raw exclude each other: raw output does not pass through ddprun");
  }
}

void check_raw(const GivenOptions& given, const OutputOptions& output) {
  if (has_streams(output.redirects)) {
    refuse_with_raw(given, "redirects");
  }
  if (has_streams(output.tee)) {
    refuse_with_raw(given, "tee");
  }
  if (!output.shown_ranks.empty()) {
    refuse_with_raw(given, "local-ranks-filter");
  }
  if (!output.stdout_filters.empty()) {
    refuse_with_raw(given, "duplicate-stdout-filters");
  }
  if (!output.stderr_filters.empty()) {
    refuse_with_raw(given, "duplicate-stderr-filters");
  }
  refuse_with_raw(given, "log-line-prefix");
}

void check_output(
    const GivenOptions& given,
    const EnvironmentLookup& lookup,
    LaunchOptions* options) {
  OutputOptions& output = options->output;
  if (output.mode == OutputMode::kRaw) {
    check_raw(given, output);
  }
  const auto prefix = lookup("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
  if (!output.line_prefix && prefix && !prefix->empty()) {
    output.line_prefix = *prefix;
  }
}

void note_useless_output(const GivenOptions& given, LaunchOptions* options) {
  const auto& shown = options->output.shown_ranks;
  const bool is_counted = options->remote.hosts.empty();
  if (is_counted && !shown.empty() &&
      *shown.begin() >= options->nproc_per_node) {
    options->notes.push_back(
        given.at("local-ranks-filter").source +
        " names none of the local ranks, which are 0 to " +
        std::to_string(options->nproc_per_node - 1) + ": no output is shown");
  }
}

} // namespace

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
    settle_nodes(given, lookup, options);
    count_ranks(given, lookup, options);
  } else { // each host's ddprun does that
    settle_hosts(given, *options);
    settle_secret(given, lookup, &options->nodes);
  }
  check_output(given, lookup, options);
  note_useless_output(given, options);
}

} // namespace ddp
