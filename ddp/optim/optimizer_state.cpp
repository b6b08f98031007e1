#include <ddp/internal/check.h>
#include <ddp/optim/optimizer_fields.h>
#include <ddp/optim/optimizer_plan.h>
#include <ddp/optimizers.h>
#include <ddp/support/containers.h>

#include <ATen/core/Tensor.h>

#include <deque>
#include <memory>
#include <optional>
#include <tuple>

namespace ddp {
namespace {

using c10::IValue;
using c10::impl::GenericDict;
using c10::impl::GenericList;
using detail::new_dict;
using detail::new_list;
using torch::optim::Optimizer;

/// Collects fields in Python's form.
class SavedFields {
 public:
  template <typename Value>
  void operator()(const char* name, const Value& value) {
    dict_.insert(name, to_ivalue(value));
  }
  template <typename Value>
  void optional(const char* name, const Value& value) {
    const auto saved = to_ivalue(value);
    if (!saved.isNone() && !(saved.isTensor() && !saved.toTensor().defined())) {
      dict_.insert(name, saved);
    }
  }
  void step(const char* name, int64_t value) {
    dict_.insert(name, at::scalar_tensor(value, at::kFloat));
  }
  void fixed(const char* name, bool value) {
    dict_.insert(name, value);
  }

  c10::impl::GenericDict take() {
    return dict_;
  }

 private:
  template <typename Value>
  static c10::IValue to_ivalue(const Value& value) {
    return c10::IValue(value);
  }
  static c10::IValue to_ivalue(const std::tuple<double, double>& value) {
    return c10::ivalue::Tuple::create(
        {c10::IValue(std::get<0>(value)), c10::IValue(std::get<1>(value))});
  }
  static c10::IValue to_ivalue(const std::deque<at::Tensor>& tensors) {
    return list_of(tensors);
  }
  static c10::IValue to_ivalue(
      const std::optional<std::vector<at::Tensor>>& tensors) {
    return tensors ? list_of(*tensors) : c10::IValue();
  }
  template <typename Tensors>
  static c10::IValue list_of(const Tensors& tensors) {
    auto list = new_list();
    for (const auto& tensor : tensors) {
      list.push_back(tensor.defined() ? c10::IValue(tensor) : c10::IValue());
    }
    return list;
  }

  c10::impl::GenericDict dict_ = new_dict();
};

/// Sets fields from Python's form; throws if a field is invalid.
class LoadedFields {
 public:
  /// `parameter`: the dtype, device and, with `same_shape`, shape and strides.
  LoadedFields(
      const c10::impl::GenericDict& dict,
      std::string where,
      at::Tensor parameter,
      bool same_shape)
      : dict_(dict),
        where_(std::move(where)),
        parameter_(std::move(parameter)),
        same_shape_(same_shape) {}

  template <typename Value>
  void operator()(const char* name, Value& value) {
    const auto found = find(name);
    check(found.has_value(), name, "is missing");
    load(name, *found, value);
  }
  template <typename Value>
  void optional(const char* name, Value& value) {
    const auto found = find(name);
    if (found && !found->isNone()) {
      load(name, *found, value);
    } else {
      value = Value();
    }
  }
  void step(const char* name, int64_t& value) {
    (*this)(name, value);
  }
  void fixed(const char* name, bool value) const {
    const auto found = find(name);
    check(
        !found || !found->isBool() || found->toBool() == value,
        name,
        value ? "is False, which this optimizer does not support"
              : "is True, which this optimizer does not support");
  }

 private:
  void check(bool good, const char* name, const std::string& what) const {
    DDP_CHECK_VALUE(
        good, "load_optimizer_state: {}: '{}' {}", where_, name, what);
  }

  std::optional<c10::IValue> find(const char* name) const {
    const auto found = dict_.find(name);
    return found == dict_.end() ? std::nullopt
                                : std::optional<c10::IValue>(found->value());
  }

  double number(const char* name, const c10::IValue& value) const {
    check(
        value.isDouble() || value.isInt() || value.isBool() ||
            (value.isTensor() && value.toTensor().defined() &&
             value.toTensor().numel() == 1),
        name,
        "is not a number");
    return value.isTensor() ? value.toTensor().item<double>()
        : value.isBool()    ? static_cast<double>(value.toBool())
                            : value.toScalar().toDouble();
  }

  void load(const char* name, const c10::IValue& saved, double& value) const {
    value = number(name, saved);
  }
  void load(const char* name, const c10::IValue& saved, int64_t& value) const {
    value = static_cast<int64_t>(number(name, saved));
  }
  void load(const char* name, const c10::IValue& saved, bool& value) const {
    value = number(name, saved) != 0;
  }
  void load(
      const char* name,
      const c10::IValue& saved,
      std::tuple<double, double>& value) const {
    std::vector<c10::IValue> pair;
    if (saved.isTuple()) {
      pair = saved.toTupleRef().elements();
    } else if (saved.isList()) {
      pair = saved.toListRef().vec();
    }
    check(pair.size() == 2, name, "is not a pair");
    value = {number(name, pair[0]), number(name, pair[1])};
  }
  void load(const char* name, const c10::IValue& saved, std::string& value)
      const {
    check(saved.isString(), name, "is not a string");
    value = saved.toStringRef();
  }
  void load(const char* name, const c10::IValue& saved, at::Tensor& value)
      const {
    if (saved.isNone()) { // an entry of a list
      value = at::Tensor();
      return;
    }
    const auto tensor = saved.isTensor() ? saved.toTensor()
        : saved.isScalar() && !same_shape_ // as LBFGS has at first in Python
        ? at::scalar_tensor(saved.toScalar(), at::kDouble)
        : at::Tensor();
    check(tensor.defined(), name, "is not a tensor");
    check(
        !same_shape_ || tensor.sizes() == parameter_.sizes(),
        name,
        detail::format(
            "has shape {}, but its parameter has {}",
            tensor.sizes(),
            parameter_.sizes()));
    const auto& like = same_shape_ ? parameter_ : tensor;
    value = at::empty_like(like, parameter_.options()).copy_(tensor.detach());
  }
  template <typename Value>
  void load(
      const char* name,
      const c10::IValue& saved,
      std::optional<Value>& value) const {
    if (saved.isNone()) {
      value.reset();
    } else {
      load(name, saved, value.emplace());
    }
  }
  template <typename Tensors>
  void load(const char* name, const c10::IValue& saved, Tensors& value) const {
    check(saved.isList(), name, "is not a list");
    value.clear();
    for (const c10::IValue& element : saved.toListRef()) {
      load(name, element, value.emplace_back());
    }
  }

  c10::impl::GenericDict dict_;
  std::string where_;
  at::Tensor parameter_;
  bool same_shape_;
};

/// The parameters of all groups, in order.
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

GenericDict dict_at(const IValue& value, const std::string& what) {
  DDP_CHECK_VALUE(
      value.isGenericDict(),
      "load_optimizer_state: invalid optimizer state: {} is not a dictionary",
      what);
  return value.toGenericDict();
}

IValue value_at(
    const GenericDict& dict,
    const char* name,
    const std::string& where) {
  const auto found = dict.find(name);
  DDP_CHECK_VALUE(
      found != dict.end(),
      "load_optimizer_state: invalid optimizer state: {} has no '{}'",
      where,
      name);
  return found->value();
}

/// The whole state, which is parsed before anything is set.
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
      "load_optimizer_state: this optimizer has {} parameter groups, but the "
      "state has {}",
      groups.size(),
      saved.isList() ? std::to_string(saved.toListRef().size()) : "none");
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto where = "group " + std::to_string(i);
    const auto dict = dict_at(saved.toListRef()[i], where);
    const auto indices = value_at(dict, "params", where);
    DDP_CHECK_VALUE(
        indices.isList() &&
            indices.toListRef().size() == groups[i].params().size(),
        "load_optimizer_state: {} has {} parameters in this optimizer and {} "
        "in the state",
        where,
        groups[i].params().size(),
        indices.isList() ? std::to_string(indices.toListRef().size()) : "none");
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
  const std::string whole = "the state";
  const auto dict = dict_at(saved, whole);
  DDP_CHECK_VALUE(
      dict.find(detail::kShard) == dict.end(),
      "load_optimizer_state: the state is one rank's shard of a "
      "ZeroRedundancyOptimizer, which only that optimizer can load");
  parse_groups(
      optimizer, value_at(dict, "param_groups", whole), parsed, numbers);
  const auto states = dict_at(value_at(dict, "state", whole), "'state'");
  const auto parameters = all_parameters(optimizer);
  constexpr bool kSameShape =
      detail::has_shape_of_parameter_v<typename Kind::State>;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto found = states.find(numbers[i]);
    if (found == states.end()) {
      continue;
    }
    const auto where = "parameter " + std::to_string(i);
    LoadedFields fields(
        dict_at(found->value(), where),
        where,
        kSameShape ? parameters[i] : detail::empty_like_flat(parameters),
        kSameShape);
    typename Kind::State state;
    detail::visit_fields(state, fields);
    if (detail::is_started(state)) {
      parsed.states.emplace_back(parameters[i].unsafeGetTensorImpl(), state);
    }
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
