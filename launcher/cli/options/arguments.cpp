#include <launcher/cli/options/arguments.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include <launcher/cli/help/help_text.h>
#include <launcher/cli/options/option_table.h>
#include <launcher/cli/options/option_values.h>

namespace ddp {
namespace {

struct Habit {
  const char* theirs;
  const char* whose;
  const char* ours; // null if none is needed
};

constexpr Habit kHabits[] = {
    {"-n", "mpirun's and srun's", "--nproc-per-node"},
    {"--num-gpus", "deepspeed's", "--nproc-per-node"},
    {"--num-processes", "accelerate's", "--nproc-per-node"},
    {"--num-machines", "accelerate's", "--nnodes"},
    {"--machinefile", "mpirun's", "--hostfile"},
    {"-x", "mpirun's", "--env"},
    {"--allow-run-as-root", "mpirun's", nullptr},
    {"--use-env", "torch.distributed.launch's", nullptr},
    {"--mpi", "srun's", nullptr},
    {"--gpus", "srun's", "--nproc-per-node"},
    {"--nprocs", "torch.multiprocessing's", "--nproc-per-node"},
    {"--ntasks", "srun's", "--nproc-per-node"},
    {"--ntasks-per-node", "srun's", "--nproc-per-node"},
    {"-c", "srun's", "--omp"},
    {"--cpus-per-task", "srun's", "--omp"},
    {"--oversubscribe", "mpirun's", nullptr},
    {"-N", "srun's", "--nnodes"},
    {"-H", "mpirun's and horovodrun's", "--hosts"},
};

/// What the option of another launcher is called here; maybe empty.
std::string habit_hint(const std::string& name) {
  for (const Habit& habit : kHabits) {
    if (name == habit.theirs) {
      const std::string ours =
          habit.ours != nullptr ? habit.ours : "not needed";
      return std::string("; ") + habit.whose + " is " + ours + " here";
    }
  }
  return "";
}

// The option that is called "--tee" or "-t": dashes and underscores are alike,
// and a beginning that only one option has is enough.
const CommandOption& option_called(const std::string& given) {
  std::string name = given;
  std::replace(name.begin(), name.end(), '_', '-');
  const CommandOption* found = nullptr;
  std::string names; // of all that begin so
  bool is_unique = true;
  for (const CommandOption& option : option_table()) {
    for (const std::string& form : forms_of(option)) {
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
    usage_error("there is no option " + given + habit_hint(name));
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

// Whether this can follow an option as its value: a negative number can, and
// so can text such as "- ".
bool is_value(const std::string& argument) {
  return !is_option(argument) ||
      (argument[1] != '-' &&
       !std::isalpha(static_cast<unsigned char>(argument[1])));
}

} // namespace

Arguments split_arguments(const std::vector<std::string>& arguments) {
  Arguments result;
  size_t i = 0;
  while (i < arguments.size() && arguments[i] != "--" &&
         is_option(arguments[i])) {
    const std::string& argument = arguments[i++];
    WrittenOption written(argument);
    const CommandOption& option = option_called(written.source);
    if (option.value == nullptr && written.value) {
      usage_error(
          written.source + " takes no value, but has one in " + argument);
    }
    if (option.value != nullptr && !written.value) {
      if (i == arguments.size() || !is_value(arguments[i])) {
        usage_error(written.source + " needs a value: " + option.value);
      }
      written.value = arguments[i++];
    }
    result.options.emplace_back(
        &option, OptionValue{written.source, written.value.value_or("")});
    if (option.answers) {
      return result;
    }
  }
  i += i < arguments.size() && arguments[i] == "--" ? 1 : 0;
  result.command.assign(
      arguments.begin() + static_cast<ptrdiff_t>(i), arguments.end());
  return result;
}

} // namespace ddp
