#include <launcher/cli/options/option_names.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include <launcher/cli/options/option_table.h>
#include <launcher/cli/options/option_values.h>

namespace ddp {
namespace {

struct Habit {
  const char* theirs;
  const char* whose;
  const char* ours; // null where none is needed
};

constexpr Habit kHabits[] = {
    {"n", "mpirun's and srun's", "nproc-per-node"},
    {"np", "mpirun's", "nproc-per-node"},
    {"num-gpus", "deepspeed's", "nproc-per-node"},
    {"num-processes", "accelerate's", "nproc-per-node"},
    {"num-machines", "accelerate's", "nnodes"},
    {"machinefile", "mpirun's", "hostfile"},
    {"x", "mpirun's", "env"},
    {"allow-run-as-root", "mpirun's", nullptr},
    {"use-env", "torch.distributed.launch's", nullptr},
    {"mpi", "srun's", nullptr},
    {"gpus", "srun's", "nproc-per-node"},
    {"nprocs", "torch.multiprocessing's", "nproc-per-node"},
    {"ntasks", "srun's", "nproc-per-node"},
    {"ntasks-per-node", "srun's", "nproc-per-node"},
    {"c", "srun's", "omp"},
    {"cpus-per-task", "srun's", "omp"},
    {"oversubscribe", "mpirun's", nullptr},
    {"N", "srun's", "nnodes"},
    {"H", "mpirun's and horovodrun's", "hosts"},
};

/// What the option of another launcher is called here; maybe empty.
std::string habit_hint(const std::string& name) {
  for (const Habit& habit : kHabits) {
    if (name == habit.theirs) {
      const auto ours =
          habit.ours != nullptr ? std::string("--") + habit.ours : "not needed";
      return std::string("; ") + habit.whose + " is " + ours + " here";
    }
  }
  return "";
}

template <typename Visit>
void for_each_name(Visit&& visit) {
  for (const CommandOption& option : option_table()) {
    visit(option, option.name);
    if (option.alias != nullptr) {
      visit(option, option.alias);
    }
  }
}

std::string nearest_name(const std::string& name) {
  std::string nearest;
  size_t best = std::max<size_t>(2, name.size() / 3) + 1;
  for_each_name([&](const CommandOption&, const std::string& known) {
    const size_t distance = edit_distance(name, known);
    if (distance < best) {
      best = distance;
      nearest = known;
    }
  });
  return nearest;
}

[[noreturn]] void refuse_unknown(const std::string& given) {
  std::string name = given;
  std::replace(name.begin(), name.end(), '_', '-');
  std::string hint = habit_hint(name);
  const std::string nearest = nearest_name(given);
  if (hint.empty() && !nearest.empty()) {
    hint = "; did you mean --" + nearest + "?";
  }
  usage_error("there is no option --" + given + hint);
}

[[noreturn]] void refuse_ambiguous(
    const std::string& name,
    const std::vector<const CommandOption*>& candidates) {
  std::string list;
  for (const CommandOption* option : candidates) {
    list += (list.empty() ? "" : ", ") + long_form(*option);
  }
  usage_error("--" + name + " could be one of " + list);
}

} // namespace

const CommandOption& option_of_name(const std::string& given) {
  std::string name = given;
  std::replace(name.begin(), name.end(), '_', '-');
  std::vector<const CommandOption*> candidates;
  const CommandOption* exact = nullptr;
  for_each_name([&](const CommandOption& option, const std::string& known) {
    if (known == name) {
      exact = &option;
    }
    const bool listed = !candidates.empty() && candidates.back() == &option;
    if (known.compare(0, name.size(), name) == 0 && !listed) {
      candidates.push_back(&option);
    }
  });
  if (exact == nullptr && candidates.empty()) {
    refuse_unknown(given);
  }
  if (exact == nullptr && candidates.size() > 1) {
    refuse_ambiguous(given, candidates);
  }
  return exact != nullptr ? *exact : *candidates.front();
}

const CommandOption& option_of_letter(char letter) {
  for (const CommandOption& option : option_table()) {
    if (option.letter == letter) {
      return option;
    }
  }
  usage_error(
      std::string("there is no option -") + letter +
      habit_hint(std::string(1, letter)));
}

size_t edit_distance(const std::string& first, const std::string& second) {
  // Distances of a beginning of `first` to all beginnings of `second`.
  std::vector<size_t> row(second.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < first.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < second.size(); ++j) {
      const size_t replaced = diagonal + (first[i] == second[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

} // namespace ddp
