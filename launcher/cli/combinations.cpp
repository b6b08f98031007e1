#include <launcher/cli/combinations.h>

#include <common/processors.h>
#include <launcher/cli/nodes.h>
#include <launcher/cli/options/option_values.h>
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
        ", and each rank is to have its own");
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
          " raw exclude each other: raw output does not pass through ddprun");
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
}

} // namespace ddp
