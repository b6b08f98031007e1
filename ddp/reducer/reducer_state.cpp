#include <ddp/reducer/reducer_impl.h>

#include <ddp/internal/check.h>
#include <ddp/reducer/buckets/bucket_layout.h>
#include <ddp/support/containers.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>

// The state with which another run has the same buckets from its first backward
// pass on.

namespace ddp {

struct LayoutState {
  std::vector<std::vector<size_t>> orders;
  bool rebuilt = false;
  /// The number of reductions until the rebuild; 0 if none is pending.
  int64_t rebuild_in = 0;
  /// Whether the measurement is complete. `counts` is its result, empty for
  /// Python's buckets.
  bool measured = false;
  std::vector<size_t> counts;
};

namespace {

using c10::IValue;

constexpr const char* kParameters = "parameters";
constexpr const char* kOrders = "orders";
constexpr const char* kRebuilt = "rebuilt";
constexpr const char* kRebuildIn = "rebuild_in";
constexpr const char* kCounts = "counts"; // only if measured
constexpr const char* kHook = "comm_hook"; // only if it has a state

constexpr const char* kLoad = "Reducer::load_state_dict: ";

void check_form(bool good) {
  DDP_CHECK_VALUE(good, "{}the state was not saved by a Reducer", kLoad);
}

template <typename Integers>
IValue to_list(const Integers& integers) {
  return std::vector<int64_t>(integers.begin(), integers.end());
}

std::vector<int64_t> to_integers(const IValue& value) {
  check_form(value.isList());
  std::vector<int64_t> result;
  for (const auto& entry : value.toListRef()) {
    check_form(entry.isInt());
    result.push_back(entry.toInt());
  }
  return result;
}

IValue entry(const IValue& state, const char* key) {
  check_form(state.isGenericDict() && state.toGenericDict().contains(key));
  return state.toGenericDict().at(key);
}

/// A parameter as text, by which states are compared.
std::string describe(
    const std::string& name,
    const std::vector<int64_t>& sizes) {
  return c10::str(name, " ", c10::IntArrayRef(sizes));
}

std::vector<std::string> described(const IValue& parameters) {
  check_form(parameters.isGenericDict());
  std::vector<std::string> result;
  for (const auto& parameter : parameters.toGenericDict()) {
    check_form(parameter.key().isString());
    result.push_back(describe(
        parameter.key().toStringRef(), to_integers(parameter.value())));
  }
  return result;
}

void check_same(
    const std::vector<std::string>& saved,
    const std::vector<std::string>& own) {
  for (size_t i = 0; i < std::max(saved.size(), own.size()); ++i) {
    const auto at = [&](const std::vector<std::string>& list) {
      return i < list.size() ? list[i] : "missing";
    };
    DDP_CHECK_VALUE(
        at(saved) == at(own),
        "{}the state has different parameters: parameter {} is {} in the "
        "state, and {} in this Reducer",
        kLoad,
        i,
        at(saved),
        at(own));
  }
}

/// Parses the layout of `count` parameters.
LayoutState parse(const IValue& state, size_t count) {
  LayoutState result;
  std::vector<bool> seen(count);
  const auto orders = entry(state, kOrders);
  check_form(orders.isList());
  for (const auto& order : orders.toListRef()) {
    auto& indices = result.orders.emplace_back();
    for (const auto integer : to_integers(order)) {
      const auto index = static_cast<size_t>(integer);
      DDP_CHECK_VALUE(
          index < count && !seen[index],
          "{}the state is corrupt: parameter {} of {} occurs twice or does not "
          "exist",
          kLoad,
          integer,
          count);
      seen[index] = true;
      indices.push_back(index);
    }
  }
  const auto rebuilt = entry(state, kRebuilt);
  const auto rebuild_in = entry(state, kRebuildIn);
  check_form(rebuilt.isBool() && rebuild_in.isInt() && rebuild_in.toInt() >= 0);
  result.rebuilt = rebuilt.toBool();
  result.rebuild_in = rebuild_in.toInt();
  result.measured = state.toGenericDict().contains(kCounts);
  if (result.measured) {
    size_t left = result.orders.empty() ? 0 : result.orders.front().size();
    for (const auto integer : to_integers(entry(state, kCounts))) {
      const auto number = static_cast<size_t>(integer);
      check_form(number > 0 && number <= left);
      result.counts.push_back(number);
      left -= number;
    }
    check_form(result.counts.empty() || left == 0);
  }
  return result;
}

void load_hook(CommHook& hook, const IValue& state) {
  try {
    hook.load_state_dict(state);
  } catch (const c10::ValueError& error) {
    DDP_THROW(
        ValueError,
        "{}: to go on with another hook, load the TrainingState before adding "
        "the Reducer to it",
        error.what_without_backtrace());
  }
}

} // namespace

IValue ReducerImpl::state_dict() {
  auto sizes = detail::new_dict();
  for (const auto& parameter : parameters) {
    sizes.insert(parameter.key, to_list(parameter.sizes));
  }
  auto orders = detail::new_list();
  for (const auto& order : buckets.orders()) {
    orders.push_back(to_list(order));
  }
  auto dict = detail::new_dict();
  dict.insert(kParameters, sizes);
  dict.insert(kOrders, orders);
  dict.insert(kRebuilt, rebuilds_after(options) && !rebuild.step());
  dict.insert(
      kRebuildIn, rebuild.step() ? *rebuild.step() - backward.steps() : 0);
  if (observers.measured.is_wanted() && !observers.measured.is_on()) {
    dict.insert(kCounts, to_list(observers.measured.counts()));
  }
  const auto hook = reduction.hook().state_dict();
  if (!hook.isNone()) {
    dict.insert(kHook, hook);
  }
  return dict;
}

void ReducerImpl::load_state_dict(const IValue& state) {
  backward.check_not_failed();
  DDP_CHECK(
      !backward.is_open(),
      "{}a backward pass is running: load the state after backward() has "
      "returned",
      kLoad);
  std::vector<std::string> own;
  for (const auto& parameter : parameters) {
    own.push_back(describe(parameter.key, parameter.sizes));
  }
  check_same(described(entry(state, kParameters)), own);
  const auto loaded = parse(state, parameters.size());
  for (const auto& order : loaded.orders) {
    for (const size_t index : order) {
      DDP_CHECK_VALUE(
          !parameters[index].sparse,
          "{}the state has different parameters: the gradient of {} is dense "
          "in the state, and sparse in this Reducer",
          kLoad,
          parameters[index].name());
    }
  }
  if (state.toGenericDict().contains(kHook)) {
    load_hook(reduction.hook(), state.toGenericDict().at(kHook));
  }
  lay_out(loaded);
}

void ReducerImpl::lay_out(const LayoutState& state) {
  const auto rebuilds_in = rebuilds_after(options);
  rebuild.set_step(std::nullopt);
  if (rebuilds_in && !state.rebuilt) {
    const auto left = state.rebuild_in > 0 ? state.rebuild_in : *rebuilds_in;
    rebuild.set_step(backward.steps() + left);
  }
  if (state.measured) {
    observers.measured.resume(state.counts);
  } else {
    observers.measured.start();
  }
  if (state.orders.empty()) {
    return; // the state of a group of one, which has no buckets
  }
  if (state.orders == buckets.orders() &&
      state.rebuilt == buckets.is_rebuilt() &&
      !observers.measured.is_wanted()) {
    return; // a captured graph may use the memory of these buckets
  }
  buckets.clear(state.rebuilt || state.measured);
  if (lone_backward) {
    for (const auto& order : state.orders) {
      buckets.append(order, {});
    }
    return;
  }
  backward.unfrozen().release(); // the next pass adopts the rest
  for (auto order : state.orders) {
    const bool first = buckets.orders().empty();
    backward.unfrozen().take(order);
    if (first && !observers.measured.counts().empty()) {
      buckets.append(order, observers.measured.split(order));
    } else if (first && state.rebuilt && rebuilds_in) {
      buckets.append(order, rebuilt_buckets(buckets.tensors(), order, options));
    } else {
      std::sort(order.begin(), order.end());
      buckets.append(order, initial_buckets(buckets.tensors(), order, options));
    }
  }
}

} // namespace ddp
