#include <checkpoint/training_state.h>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <checkpoint/detail/containers.h>
#include <checkpoint/detail/flat_tree.h>
#include <checkpoint/detail/module_copies.h>
#include <checkpoint/detail/on_rank_0.h>
#include <checkpoint/detail/plateau_state.h>
#include <checkpoint/optimizer_state.h>
#include <checkpoint/state_dict.h>
#include <ddp/detail/text_tensor.h>
#include <ddp/random_state.h>
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

/// All ranks' values, in a list.
IValue gather(const IValue& own, const ProcessGroup& group) {
  const auto pickled = torch::jit::pickle_save(own);
  auto all = detail::new_list();
  for (const auto& bytes :
       group.all_gather(std::string(pickled.begin(), pickled.end()))) {
    all.push_back(torch::jit::pickle_load({bytes.begin(), bytes.end()}));
  }
  return all;
}

} // namespace

namespace detail {

IValue to_ivalue(const StateDict& state) {
  return tree_of(state);
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
    std::function<Commit(const IValue&)> load) {
  return add_part(
      {name,
       /*per_rank=*/false,
       /*optional=*/false,
       std::move(save),
       [load = std::move(load)](const IValue& state, const ProcessGroup&) {
         return load(state);
       }});
}

TrainingState& TrainingState::add(
    const std::string& name,
    torch::nn::Module& module) {
  return add_local(
      name,
      [&module] { return detail::to_ivalue(detail::named_state(module)); },
      [&module, name](const IValue& state) -> Commit {
        const auto copies = detail::plan_copies(
            "'" + name + "'", detail::to_state_dict(state), module);
        return [copies] { detail::make_copies(copies); };
      });
}

TrainingState& TrainingState::add(
    const std::string& name,
    torch::optim::Optimizer& optimizer) {
  return add_local(
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
    std::function<Commit(const IValue&)> load) {
  return add_part(
      {name,
       /*per_rank=*/true,
       /*optional=*/false,
       std::move(save),
       [load = std::move(load), name](
           const IValue& state, const ProcessGroup& group) -> Commit {
         detail::check_kind(name, state.isList(), "list of ranks' states");
         const auto states = state.toListRef();
         if (states.size() == static_cast<size_t>(group.size())) {
           return load(states[group.rank()]);
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
       }});
}

TrainingState& TrainingState::add_random_state(const std::string& name) {
  return add_per_rank(
      name,
      [] { return detail::to_ivalue(random_state()); },
      [](const IValue& state) -> Commit {
        const auto own = detail::to_state_dict(state);
        return [own] { set_random_state(own); };
      });
}

IValue TrainingState::state_dict(const ProcessGroup& group) const {
  std::vector<IValue> own;
  detail::on_each_rank("TrainingState::state_dict", group, [&] {
    for (const auto& part : parts_) {
      own.push_back(part.save());
    }
  });
  auto dict = new_dict();
  for (size_t i = 0; i < parts_.size(); ++i) {
    dict.insert(
        parts_[i].name, parts_[i].per_rank ? gather(own[i], group) : own[i]);
  }
  return dict;
}

void TrainingState::load_state_dict(
    const IValue& state,
    const ProcessGroup& group) {
  TORCH_CHECK_VALUE(
      state.isGenericDict(), "load_state_dict: the state is no dictionary");
  const auto dict = state.toGenericDict();
  std::vector<Commit> commits;
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
    commits.push_back(part.load(found->value(), group));
  }
  for (const auto& commit : commits) {
    commit();
  }
}

} // namespace ddp
