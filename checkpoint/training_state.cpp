#include <ddp/checkpoint/training_state.h>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <checkpoint/formats/common/digest.h>
#include <checkpoint/formats/flat_tree.h>
#include <checkpoint/module_copies.h>
#include <checkpoint/plateau_state.h>
#include <checkpoint/replica_check.h>
#include <checkpoint/state_dict.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/internal/text_tensor.h>
#include <ddp/joinable.h>
#include <ddp/optim/optimizer_plan.h>
#include <ddp/optimizers.h>
#include <ddp/process_group/agreement/on_rank_0.h>
#include <ddp/random.h>
#include <ddp/random/random_state.h>
#include <ddp/support/containers.h>
#include <ddp/support/plain_tensor.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/nn/module.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <algorithm>

namespace ddp {
namespace {

using c10::IValue;
using detail::new_dict;

constexpr const char* kCount = "last_epoch"; // Python's name for it

/// LibTorch keeps the count to itself and to derived classes.
struct StepCount : torch::optim::LRScheduler {
  static unsigned& of(LRScheduler& scheduler) {
    return scheduler.*(&StepCount::step_count_);
  }
};

std::string pickled(const IValue& value) {
  const auto bytes = torch::jit::pickle_save(value);
  return {bytes.begin(), bytes.end()};
}

/// The values of such strings, in a list.
IValue unpickled(const std::vector<std::string>& all) {
  auto list = detail::new_list();
  for (const auto& bytes : all) {
    list.push_back(torch::jit::pickle_load({bytes.begin(), bytes.end()}));
  }
  return list;
}

void add_bytes(const IValue& state, detail::Digest& digest) {
  if (state.isGenericDict()) {
    for (const auto& entry : state.toGenericDict()) {
      add_bytes(entry.value(), digest);
    }
  } else if (state.isTensor()) {
    const auto tensor = detail::plain_tensor(state.toTensor());
    digest.add(tensor.const_data_ptr(), tensor.nbytes());
  }
}

/// For a rank that no generator was saved for: a seed that depends on where
/// rank 0's generators were.
uint64_t derived_seed(const IValue& of_rank_0, const ProcessGroup& group) {
  detail::Digest digest;
  add_bytes(of_rank_0, digest);
  return rank_seed(digest.value(), group.size(), group.rank());
}

bool all_equal(c10::ArrayRef<IValue> states) {
  const auto first = pickled(states[0]);
  return std::all_of(states.begin() + 1, states.end(), [&](const auto& state) {
    return pickled(state) == first;
  });
}

} // namespace

namespace detail {

IValue to_ivalue(const StateDict& state) {
  return tree_of(state);
}

void run_all(const std::vector<std::function<void()>>& functions) {
  for (const auto& function : functions) {
    function();
  }
}

void check_kind(const std::string& name, bool good, const char* kind) {
  TORCH_CHECK_VALUE(
      good, "load_state_dict: '", name, "' is no ", kind, " in this state");
}

StateDict to_state_dict(const IValue& state) {
  TORCH_CHECK_VALUE(
      state.isGenericDict(), "a state of tensors by name was expected");
  StateDict result;
  for (const auto& entry : state.toGenericDict()) {
    TORCH_CHECK_VALUE(
        entry.key().isString() && entry.value().isTensor(),
        "a state of tensors by name was expected");
    result.insert(entry.key().toStringRef(), entry.value().toTensor());
  }
  return result;
}

} // namespace detail

TrainingState& TrainingState::add_part(Part part) {
  const bool known =
      std::any_of(parts_.begin(), parts_.end(), [&](const Part& other) {
        return other.name == part.name;
      });
  TORCH_CHECK_VALUE(
      !known, "TrainingState: there is a part '", part.name, "' already");
  parts_.push_back(std::move(part));
  return *this;
}

TrainingState& TrainingState::add_local(
    const std::string& name,
    std::function<IValue()> save,
    Plan load) {
  return add_part(
      {name,
       std::move(save),
       [load = std::move(load)](const IValue& state, const ProcessGroup&) {
         return load(state);
       }});
}

TrainingState& TrainingState::add(
    const std::string& name,
    torch::nn::Module& module) {
  add_local(
      name,
      [&module] { return detail::to_ivalue(detail::named_state(module)); },
      [&module, name](const IValue& state) -> Commit {
        const auto copies = detail::plan_copies(
            "'" + name + "'", detail::to_state_dict(state), module);
        return [copies] { detail::make_copies(copies); };
      });
  parts_.back().module = &module;
  return *this;
}

TrainingState& TrainingState::add(
    const std::string& name,
    torch::optim::Optimizer& optimizer) {
  TORCH_CHECK_VALUE(
      !dynamic_cast<Joinable*>(&optimizer),
      "TrainingState: '",
      name,
      "' shares its state out over ranks: add it by its own type, "
      "ZeroRedundancyOptimizer<...>, not as torch::optim::Optimizer");
  add_local(
      name,
      [&optimizer] { return optimizer_state(optimizer); },
      [&optimizer, name](const IValue& state) -> Commit {
        try {
          return detail::plan_optimizer_state(optimizer, state);
        } catch (const c10::Error& error) {
          TORCH_CHECK_VALUE(
              false, "'", name, "': ", error.what_without_backtrace());
        }
      });
  parts_.back().optimizer = &optimizer;
  return *this;
}

TrainingState& TrainingState::add(
    const std::string& name,
    torch::optim::LRScheduler& scheduler) {
  return add_local(
      name,
      [&scheduler] {
        auto dict = new_dict();
        dict.insert(kCount, static_cast<int64_t>(StepCount::of(scheduler)));
        return IValue(dict);
      },
      [&scheduler, name](const IValue& state) -> Commit {
        detail::check_kind(
            name,
            state.isGenericDict() && state.toGenericDict().contains(kCount) &&
                state.toGenericDict().at(kCount).isInt(),
            "scheduler's");
        const auto count = state.toGenericDict().at(kCount).toInt();
        return [&scheduler, count] {
          StepCount::of(scheduler) = static_cast<unsigned>(count);
        };
      });
}

TrainingState& TrainingState::add(
    const std::string& name,
    torch::optim::ReduceLROnPlateauScheduler& scheduler) {
  return add_local(
      name,
      [&scheduler] { return detail::plateau_state(scheduler); },
      [&scheduler, name](const IValue& state) -> Commit {
        return detail::plan_plateau_state(name, scheduler, state);
      });
}

TrainingState& TrainingState::add(const std::string& name, std::string& value) {
  return add_local(
      name,
      [&value] { return IValue(value); },
      [&value, name](const IValue& state) -> Commit {
        detail::check_kind(name, state.isString(), "text");
        return [&value, text = state.toStringRef()] { value = text; };
      });
}

TrainingState& TrainingState::add(const std::string& name, at::Tensor& tensor) {
  return add_local(
      name,
      [&tensor] { return IValue(tensor); },
      [&tensor, name](const IValue& state) -> Commit {
        detail::check_kind(name, state.isTensor(), "tensor");
        const auto loaded = state.toTensor();
        return [&tensor, loaded] {
          tensor = tensor.defined() ? loaded.to(tensor.device()) : loaded;
        };
      });
}

TrainingState& TrainingState::add_per_rank(
    const std::string& name,
    std::function<IValue()> save,
    Plan load,
    std::function<Commit(uint64_t)> derive) {
  const auto plan = [name, load = std::move(load), derive = std::move(derive)](
                        const IValue& state,
                        const ProcessGroup& group) -> Commit {
    detail::check_kind(
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
      const bool tells = rank == states.size(); // one for all
      return [name,
              tells,
              saved = states.size(),
              commit = derive(derived_seed(states[0], group))] {
        if (tells) {
          TORCH_WARN(
              "ddp: '",
              name,
              "' was saved on ",
              saved,
              saved == 1 ? " rank" : " ranks",
              "; each further rank begins a stream of its own. If all ranks "
              "are to draw the same, give them the same seed now");
        }
        commit();
      };
    }
    return [name, saved = states.size(), size = group.size()] {
      TORCH_WARN(
          "ddp: '",
          name,
          "' was saved on ",
          saved,
          " ranks and is left out on ",
          size);
    };
  };
  return add_part({name, std::move(save), plan, /*per_rank=*/true});
}

TrainingState& TrainingState::add_random_state(const std::string& name) {
  return add_per_rank(
      name,
      [] { return detail::to_ivalue(random_state()); },
      [](const IValue& state) -> Commit {
        const auto own = detail::to_state_dict(state);
        detail::check_random_state(own);
        return [own] { set_random_state(own); };
      },
      [](uint64_t seed) -> Commit {
        return [seed] { at::manual_seed(seed); };
      });
}

// A rank on which a part fails may not miss the communication of another part:
// ranks agree first, and after each part that may communicate.
std::vector<IValue> TrainingState::save_parts(const ProcessGroup& group) const {
  constexpr const char* kOperation = "TrainingState::state_dict";
  std::vector<IValue> own(parts_.size());
  const auto save = [&](size_t i) {
    own[i] = parts_[i].save();
    if (parts_[i].per_rank) {
      own[i] = pickled(own[i]);
    }
  };
  detail::on_each_rank(kOperation, group, [&] {
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (!parts_[i].collective) {
        save(i);
      }
    }
  });
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].collective) {
      detail::on_each_rank_together(kOperation, group, [&] { save(i); });
    }
  }
  return own;
}

IValue TrainingState::state_dict(const ProcessGroup& group) const {
  const detail::heartbeat::Activity activity("TrainingState::state_dict");
  std::string parts;
  for (const auto& part : parts_) {
    parts += (parts.empty() ? "'" : ", '") + part.name + "'";
  }
  detail::check_same_parts(parts, group);
  detail::Named<torch::nn::Module> modules;
  detail::Named<torch::optim::Optimizer> optimizers;
  for (const auto& part : parts_) {
    if (part.module) {
      modules.emplace_back(part.name, part.module);
    } else if (part.optimizer) {
      optimizers.emplace_back(part.name, part.optimizer);
    }
  }
  if (!modules.empty()) {
    detail::check_replicas(modules, optimizers, group);
  }
  const auto own = save_parts(group);
  std::vector<std::vector<std::string>> of_ranks(parts_.size());
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].per_rank) {
      of_ranks[i] = group.all_gather(own[i].toStringRef());
    }
  }
  auto dict = new_dict();
  detail::on_each_rank("TrainingState::state_dict", group, [&] {
    for (size_t i = 0; i < parts_.size(); ++i) {
      dict.insert(
          parts_[i].name, parts_[i].per_rank ? unpickled(of_ranks[i]) : own[i]);
    }
  });
  return dict;
}

TrainingState::Commits TrainingState::plan(
    const IValue& state,
    const ProcessGroup& group) const {
  TORCH_CHECK_VALUE(
      state.isGenericDict(), "load_state_dict: the state is no dictionary");
  const auto dict = state.toGenericDict();
  Commits commits;
  for (const auto& part : parts_) {
    const auto found = dict.find(part.name);
    if (found == dict.end() && part.optional) {
      TORCH_WARN("ddp: the state has no '", part.name, "', which is left out");
      continue;
    }
    TORCH_CHECK_VALUE(
        found != dict.end(),
        "load_state_dict: the state has no '",
        part.name,
        "'");
    auto& list = part.unchecked ? commits.unchecked : commits.checked;
    list.push_back(part.load(found->value(), group));
  }
  return commits;
}

void TrainingState::load_state_dict(
    const IValue& state,
    const ProcessGroup& group) {
  const auto commits = plan(state, group);
  detail::run_all(commits.unchecked);
  detail::run_all(commits.checked);
}

} // namespace ddp
