#include <launcher/cli/options/option_table.h>

namespace ddp {

const std::vector<CommandOption>& option_table() {
  static const std::vector<CommandOption> table = [] {
    std::vector<CommandOption> options;
    for (const auto part :
         {&rank_options,
          &node_options,
          &program_options,
          &placement_options,
          &failure_options,
          &output_options,
          &torchrun_options,
          &other_options}) {
      const std::vector<CommandOption> more = part();
      options.insert(options.end(), more.begin(), more.end());
    }
    return options;
  }();
  return table;
}

std::vector<CommandOption> in_group(
    OptionGroup group,
    std::vector<CommandOption> options) {
  for (CommandOption& each : options) {
    each.group = group;
  }
  return options;
}

CommandOption from_command_line(CommandOption option) {
  option.from_environment = false;
  return option;
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
