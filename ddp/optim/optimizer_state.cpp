#include <ddp/internal/check.h>
#include <ddp/optim/loaded_fields.h>
#include <ddp/optim/optimizer_fields.h>
#include <ddp/optim/optimizer_plan.h>
#include <ddp/optim/saved_fields.h>
#include <ddp/optimizers.h>
#include <ddp/support/containers.h>

#include <ATen/core/Tensor.h>

#include <memory>

namespace ddp {
namespace {

using c10::IValue;
using c10::impl::GenericDict;
using c10::impl::GenericList;
using detail::LoadedFields;
using detail::new_dict;
using detail::new_list;
using detail::SavedFields;
using torch::optim::Optimizer;

/// All parameters, counted through the groups.
std::vector<at::Tensor> all_parameters(const Optimizer& optimizer) {
  std::vector<at::Tensor> all;
  for (const auto& group : optimizer.param_groups()) {
    all.insert(all.end(), group.params().begin(), group.params().end());
  }
  return all;
}

template <typename Kind>
GenericList saved_groups(const Optimizer& optimizer) {
  auto groups = new_list();
  int64_t index = 0;
  for (const auto& group : optimizer.param_groups()) {
    auto options = static_cast<const typename Kind::Options&>(group.options());
    SavedFields fields;
    detail::visit_fields(options, fields);
    auto dict = fields.take();
    auto parameters = new_list();
    for (size_t i = 0; i < group.params().size(); ++i) {
      parameters.push_back(index++);
    }
    dict.insert("params", parameters);
    groups.push_back(dict);
  }
  return groups;
}

template <typename Kind>
GenericDict saved_states(const Optimizer& optimizer) {
  auto states = new_dict();
  int64_t index = 0;
  for (const auto& parameter : all_parameters(optimizer)) {
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found != optimizer.state().end()) {
      auto state = static_cast<const typename Kind::State&>(*found->second);
      SavedFields fields;
      detail::visit_fields(state, fields);
      states.insert(index, fields.take());
    }
    ++index;
  }
  return states;
}

GenericDict dict_at(const IValue& value, const char* what) {
  DDP_CHECK_VALUE(
      value.isGenericDict(),
      "load_optimizer_state: this is not an optimizer's state: {} is not a "
      "dictionary",
      what);
  return value.toGenericDict();
}

IValue value_at(const GenericDict& dict, const char* name) {
  const auto found = dict.find(name);
  DDP_CHECK_VALUE(
      found != dict.end(),
      "load_optimizer_state: this is not an optimizer's state: it has no '{}'",
      name);
  return found->value();
}

/// The state, parsed as a whole before anything is set.
template <typename Kind>
struct Parsed {
  std::vector<typename Kind::Options> options;
  std::vector<std::pair<void*, typename Kind::State>> states;
};

template <typename Kind>
void parse_groups(
    const Optimizer& optimizer,
    const IValue& saved,
    Parsed<Kind>& parsed,
    std::vector<int64_t>& numbers) {
  const auto& groups = optimizer.param_groups();
  DDP_CHECK_VALUE(
      saved.isList() && saved.toListRef().size() == groups.size(),
      "load_optimizer_state: this optimizer has {} groups of parameters, but "
      "the state has {}",
      groups.size(),
      saved.isList() ? std::to_string(saved.toListRef().size()) : "none");
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto where = "group " + std::to_string(i);
    const auto dict = dict_at(saved.toListRef()[i], where.c_str());
    const auto indices = value_at(dict, "params");
    DDP_CHECK_VALUE(
        indices.isList() &&
            indices.toListRef().size() == groups[i].params().size(),
        "load_optimizer_state: {} has {} parameters here and {} in the state",
        where,
        groups[i].params().size(),
        indices.isList() ? std::to_string(indices.toListRef().size()) : "no");
    for (const IValue& index : indices.toListRef()) {
      DDP_CHECK_VALUE(
          index.isInt(),
          "load_optimizer_state: {}: 'params' are not numbers",
          where);
      numbers.push_back(index.toInt());
    }
    parsed.options.push_back(
        static_cast<const typename Kind::Options&>(groups[i].options()));
    LoadedFields fields(dict, where, {}, false);
    detail::visit_fields(parsed.options.back(), fields);
  }
}

template <typename Kind>
Parsed<Kind> parse_state(const Optimizer& optimizer, const IValue& saved) {
  Parsed<Kind> parsed;
  std::vector<int64_t> numbers;
  const auto dict = dict_at(saved, "it");
  DDP_CHECK_VALUE(
      dict.find(detail::kShard) == dict.end(),
      "load_optimizer_state: this is one rank's part of a "
      "ZeroRedundancyOptimizer's state, which only that optimizer can load");
  parse_groups(optimizer, value_at(dict, "param_groups"), parsed, numbers);
  const auto states = dict_at(value_at(dict, "state"), "'state'");
  const auto parameters = all_parameters(optimizer);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto found = states.find(numbers[i]);
    if (found == states.end()) {
      continue;
    }
    const auto where = "parameter " + std::to_string(i);
    LoadedFields fields(
        dict_at(found->value(), where.c_str()),
        where,
        parameters[i],
        detail::has_shape_of_parameter_v<typename Kind::State>);
    auto& state = parsed.states.emplace_back();
    state.first = parameters[i].unsafeGetTensorImpl();
    detail::visit_fields(state.second, fields);
  }
  return parsed;
}

} // namespace

IValue optimizer_state(const Optimizer& optimizer) {
  auto dict = new_dict();
  detail::with_kind_of(optimizer, [&](auto kind) {
    using Kind = decltype(kind);
    dict.insert("state", saved_states<Kind>(optimizer));
    dict.insert("param_groups", saved_groups<Kind>(optimizer));
  });
  return dict;
}

std::function<void()> detail::plan_optimizer_state(
    Optimizer& optimizer,
    const IValue& saved) {
  std::function<void()> plan;
  with_kind_of(optimizer, [&](auto kind) {
    using Kind = decltype(kind);
    plan = [&optimizer, parsed = parse_state<Kind>(optimizer, saved)] {
      for (size_t i = 0; i < parsed.options.size(); ++i) {
        static_cast<typename Kind::Options&>(
            optimizer.param_groups()[i].options()) = parsed.options[i];
      }
      optimizer.state().clear();
      for (const auto& [key, state] : parsed.states) {
        optimizer.state()[key] = std::make_unique<typename Kind::State>(state);
      }
    };
  });
  return plan;
}

void load_optimizer_state(Optimizer& optimizer, const IValue& saved) {
  detail::plan_optimizer_state(optimizer, saved)();
}

} // namespace ddp
