
#include <algorithm>
#include <cctype>
#include <set>

#include <launcher/cli/options/option_table.h>
#include <launcher/cli/options/option_values.h>

namespace ddp {
namespace {

// ddprun's names for options of mpirun, srun, torch.distributed.launch,
// accelerate, deepspeed, horovodrun and earlier versions of ddprun.
const std::pair<const char*, std::set<std::string>> kHabits[] = {
    {"--nproc-per-node",
     {"-n",
      "--num-gpus",
      "--num-processes",
      "--gpus",
      "--nprocs",
      "--ntasks",
      "--ntasks-per-node"}},
    {"--nnodes", {"-N", "--num-machines"}},
    {"--hosts", {"-H"}},
    {"--hostfile", {"--machinefile"}},
    {"--env", {"-x"}},
    {"OMP_NUM_THREADS=N, or --env OMP_NUM_THREADS=N",
     {"-c", "--cpus-per-task", "--omp"}},
    {"CUDA_VISIBLE_DEVICES=LIST, or --env CUDA_VISIBLE_DEVICES=LIST",
     {"--devices", "--gpu-ids"}},
    {"DDP_TIMEOUT=SECONDS", {"--start-timeout"}},
    {"the example check_nodes", {"--check"}},
    {"not needed",
     {"--allow-run-as-root", "--use-env", "--mpi", "--oversubscribe"}},
};

[[noreturn]] void reject_unknown(
    const std::string& given,
    const std::string& name) {
  std::string hint;
  for (const auto& [ours, theirs] : kHabits) {
    if (theirs.count(name) != 0) {
      hint = std::string("; it is ") + ours + " here";
    }
  }
  usage_error("unknown option " + given + hint);
}

// The option with a name such as "--tee" or "-t". Underscores may replace
// dashes, and a unique prefix is sufficient.
const CommandOption& option_called(const std::string& given) {
  std::string name = given;
  std::replace(name.begin(), name.end(), '_', '-');
  const CommandOption* found = nullptr;
  std::string names; // of all matching options
  bool is_unique = true;
  for (const CommandOption& option : option_table()) {
    for (const std::string& form : option.forms) {
      if (form == name) {
        return option;
      }
      if (form.compare(0, name.size(), name) == 0) {
        is_unique = is_unique && (found == nullptr || found == &option);
        names += (found == nullptr ? "" : ", ") + form;
        found = &option;
      }
    }
  }
  if (found == nullptr) {
    reject_unknown(given, name);
  }
  if (!is_unique) {
    usage_error(given + " could be one of " + names);
  }
  return *found;
}

// An option as written, without its value in the next argument.
struct WrittenOption {
  explicit WrittenOption(const std::string& argument) {
    const bool is_long = argument[1] == '-';
    const size_t end = is_long ? argument.find('=') : 2;
    source = argument.substr(0, end);
    if (end < argument.size()) {
      value = argument.substr(end + (argument[end] == '=' ? 1 : 0));
    }
  }

  std::string source;
  std::optional<std::string> value;
};

bool is_option(const std::string& argument) {
  return argument.size() > 1 && argument[0] == '-';
}

// Whether the argument can be an option's value; negative numbers and text such
// as "- " can.
bool is_value(const std::string& argument) {
  return !is_option(argument) ||
      (argument[1] != '-' &&
       !std::isalpha(static_cast<unsigned char>(argument[1])));
}

} // namespace

bool answers(const CommandOption& option) {
  return option.name() == "help" || option.name() == "version";
}

Arguments split_arguments(const std::vector<std::string>& arguments) {
  Arguments result;
  size_t i = 0;
  while (i < arguments.size() && arguments[i] != "--" &&
         is_option(arguments[i])) {
    const std::string& argument = arguments[i++];
    WrittenOption written(argument);
    const CommandOption& option = option_called(written.source);
    if (option.value.empty() && written.value) {
      usage_error(
          written.source + " accepts no value, but has one in " + argument);
    }
    if (!option.value.empty() && !written.value) {
      if (i == arguments.size() || !is_value(arguments[i])) {
        usage_error(written.source + " needs a value: " + option.value);
      }
      written.value = arguments[i++];
    }
    result.options.emplace_back(
        &option, OptionValue{written.source, written.value.value_or("")});
    if (answers(option)) {
      return result;
    }
  }
  i += i < arguments.size() && arguments[i] == "--" ? 1 : 0;
  result.command.assign(
      arguments.begin() + static_cast<ptrdiff_t>(i), arguments.end());
  return result;
}

std::optional<OptionValue> value_from_environment(
    const CommandOption& option,
    const EnvironmentLookup& lookup) {
  // Otherwise, the ddprun of each host would also read the first two.
  const std::set<std::string> without{
      "hosts", "hostfile", "env", "help", "version"};
  for (const std::string& form : option.forms) {
    std::string name = "PET";
    for (const char character : form.substr(1)) {
      name +=
          character == '-' ? '_' : static_cast<char>(std::toupper(character));
    }
    const auto text = lookup(name.c_str());
    if (!text || without.count(option.name()) != 0) {
      continue;
    }
    if (!option.value.empty() || *text == "1") {
      return OptionValue{name, option.value.empty() ? "" : *text};
    }
    if (*text != "0") {
      reject_value({name, *text}, "1 or 0");
    }
  }
  return std::nullopt;
}

} // namespace ddp
