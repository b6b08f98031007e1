#include <launcher/cli/options/option_table.h>

namespace ddp {

const std::vector<CommandOption>& option_table() {
  static const std::vector<CommandOption> table = joined(
      {&rank_options,
       &node_options,
       &program_options,
       &placement_and_failure_options,
       &output_and_other_options});
  return table;
}

std::vector<CommandOption> joined(
    std::initializer_list<std::vector<CommandOption> (*)()> parts) {
  std::vector<CommandOption> options;
  for (const auto part : parts) {
    const std::vector<CommandOption> more = part();
    options.insert(options.end(), more.begin(), more.end());
  }
  return options;
}

const char* heading_of(OptionGroup group) {
  switch (group) {
    case OptionGroup::kRanks:
      return "Ranks";
    case OptionGroup::kNodes:
      return "Several nodes";
    case OptionGroup::kProgram:
      return "Program";
    case OptionGroup::kPlacement:
      return "Environment and placement";
    case OptionGroup::kFailures:
      return "Failures and restarts";
    case OptionGroup::kOutput:
      return "Output";
    case OptionGroup::kTorchrun:
      return "Torchrun's, accepted";
    case OptionGroup::kOther:
      break;
  }
  return "Other";
}

} // namespace ddp
