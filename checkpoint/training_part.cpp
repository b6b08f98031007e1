#include <ddp/checkpoint/training_state.h>

#include <checkpoint/formats/common/checksum.h>
#include <checkpoint/formats/tree_flatten.h>
#include <ddp/internal/check.h>
#include <ddp/process_group/agreement/on_rank_0.h>
#include <ddp/random.h>
#include <ddp/support/containers.h>
#include <ddp/support/plain_tensor.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <algorithm>

namespace ddp::detail {
namespace {

using c10::IValue;

constexpr const char* kStateDict = "TrainingState::state_dict";

std::string pickled(const IValue& value) {
  const auto bytes = torch::jit::pickle_save(value);
  return {bytes.begin(), bytes.end()};
}

/// A list of the values that `pickled` converted.
IValue unpickled(const std::vector<std::string>& all) {
  auto list = new_list();
  for (const auto& bytes : all) {
    list.push_back(torch::jit::pickle_load({bytes.begin(), bytes.end()}));
  }
  return list;
}

void add_bytes(const IValue& state, Checksum& checksum) {
  if (state.isGenericDict()) {
    for (const auto& entry : state.toGenericDict()) {
      add_bytes(entry.value(), checksum);
    }
  } else if (state.isTensor()) {
    const auto tensor = plain_tensor(state.toTensor());
    checksum.add(tensor.const_data_ptr(), tensor.nbytes());
  }
}

/// A seed for a rank without a saved generator, from the state of rank 0's
/// generators.
uint64_t derived_seed(const IValue& of_rank_0, const ProcessGroup& group) {
  Checksum checksum;
  add_bytes(of_rank_0, checksum);
  return rank_seed(checksum.value(), group.size(), group.rank());
}

/// The values of a dict: ranks' generators have the names of their devices,
/// such as "cuda:1".
IValue without_names(const IValue& state) {
  if (!state.isGenericDict()) {
    return state;
  }
  auto values = new_list();
  for (const auto& entry : state.toGenericDict()) {
    values.push_back(entry.value());
  }
  return values;
}

bool all_equal(c10::ArrayRef<IValue> states) {
  const auto first = pickled(without_names(states[0]));
  return std::all_of(states.begin() + 1, states.end(), [&](const auto& state) {
    return pickled(without_names(state)) == first;
  });
}

// If a part fails on one rank, that rank must still participate in the
// communication of other parts. Ranks therefore agree first, and after each
// part that may communicate.
std::vector<IValue> own_states(
    const std::vector<TrainingPart>& parts,
    const ProcessGroup& group) {
  std::vector<IValue> own(parts.size());
  const auto save = [&](size_t i) {
    own[i] = parts[i].save();
    if (parts[i].per_rank) {
      own[i] = pickled(own[i]);
    }
  };
  on_each_rank(kStateDict, group, [&] {
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!parts[i].collective) {
        save(i);
      }
    }
  });
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].collective) {
      on_each_rank_together(kStateDict, group, [&] { save(i); });
    }
  }
  return own;
}

/// Calls `work()`, whose errors then name the part.
template <typename Work>
auto naming_part(const std::string& name, const Work& work) {
  try {
    return work();
  } catch (const c10::DistError&) {
    throw; // callers act on the type
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    if (text.find("'" + name + "'") != std::string::npos) {
      throw;
    }
    DDP_THROW(ValueError, "'{}': {}", name, text);
  }
}

} // namespace

IValue to_ivalue(const StateDict& state) {
  return to_generic_dict(state);
}

void run_all(const std::vector<std::function<void()>>& functions) {
  for (const auto& function : functions) {
    function();
  }
}

void check_kind(const std::string& name, bool good, const char* kind) {
  DDP_CHECK_VALUE(
      good, "load_state_dict: '{}' is not a {} in this state", name, kind);
}

TrainingPart local_part(
    const std::string& name,
    std::function<IValue()> save,
    Plan load) {
  return {
      name,
      std::move(save),
      [load = std::move(load)](const IValue& state, const ProcessGroup&) {
        return load(state);
      }};
}

StateDict to_state_dict(const IValue& state) {
  DDP_CHECK_VALUE(state.isGenericDict(), "expected a dict of named tensors");
  StateDict result;
  for (const auto& entry : state.toGenericDict()) {
    DDP_CHECK_VALUE(
        entry.key().isString() && entry.value().isTensor(),
        "expected a dict of named tensors");
    result.insert(entry.key().toStringRef(), entry.value().toTensor());
  }
  return result;
}

TrainingPart per_rank_part(
    const std::string& name,
    std::function<IValue()> save,
    Plan load,
    std::function<Commit(uint64_t)> derive) {
  const auto plan = [name, load = std::move(load), derive = std::move(derive)](
                        const IValue& state,
                        const ProcessGroup& group) -> Commit {
    check_kind(
        name,
        state.isList() && !state.toListRef().empty(),
        "list of ranks' states");
    const auto states = state.toListRef();
    const auto rank = static_cast<size_t>(group.rank());
    const bool same = states.size() == static_cast<size_t>(group.size());
    if (same || (derive && rank < states.size())) {
      return load(states[rank]);
    }
    if (derive) {
      if (states.size() > 1 && all_equal(states)) {
        return load(states[0]);
      }
      const bool tells = rank == states.size(); // only one rank warns
      return [name,
              tells,
              saved = states.size(),
              commit = derive(derived_seed(states[0], group))] {
        if (tells) {
          TORCH_WARN(detail::format(
              "ddp: '{}' was saved on {}{}; each additional rank starts "
              "its own stream of random numbers. If all ranks must draw the "
              "same numbers, set the same seed on all of them now",
              name,
              saved,
              saved == 1 ? " rank" : " ranks"));
        }
        commit();
      };
    }
    return [name, saved = states.size(), size = group.size()] {
      TORCH_WARN(detail::format(
          "ddp: '{}' was not loaded: it was saved on {}{}, and this group has "
          "{}",
          name,
          saved,
          saved == 1 ? " rank" : " ranks",
          size));
    };
  };
  return {name, std::move(save), plan, /*per_rank=*/true};
}

Commits plan_parts(
    const std::vector<TrainingPart>& parts,
    const IValue& state,
    const ProcessGroup& group) {
  DDP_CHECK_VALUE(
      state.isGenericDict(), "load_state_dict: the state is not a dictionary");
  const auto dict = state.toGenericDict();
  Commits commits;
  for (const auto& part : parts) {
    const auto found = dict.find(part.name);
    if (found == dict.end() && part.optional) {
      TORCH_WARN(
          "ddp: '",
          part.name,
          "' was not loaded: the state does not contain it");
      continue;
    }
    DDP_CHECK_VALUE(
        found != dict.end(),
        "load_state_dict: the state has no '{}'",
        part.name);
    auto commit = naming_part(
        part.name, [&] { return part.load(found->value(), group); });
    auto& list = part.unchecked ? commits.unchecked : commits.checked;
    list.push_back([name = part.name, commit = std::move(commit)] {
      naming_part(name, commit);
    });
  }
  return commits;
}

IValue save_parts(
    const std::vector<TrainingPart>& parts,
    const ProcessGroup& group) {
  const auto own = own_states(parts, group);
  std::vector<std::vector<std::string>> of_ranks(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].per_rank) {
      of_ranks[i] = group.all_gather(own[i].toStringRef());
    }
  }
  auto dict = new_dict();
  on_each_rank(kStateDict, group, [&] {
    for (size_t i = 0; i < parts.size(); ++i) {
      dict.insert(
          parts[i].name, parts[i].per_rank ? unpickled(of_ranks[i]) : own[i]);
    }
  });
  return dict;
}

} // namespace ddp::detail
