#pragma once

// The definitions of the templates in <ddp/checkpoint/training_state.h>.
#include <ddp/checkpoint/training_state.h>
#include <ddp/internal/export.h>

namespace ddp {

class Joinable;

namespace detail {

DDP_API c10::IValue to_ivalue(const StateDict& state);
inline c10::IValue to_ivalue(c10::IValue state) {
  return state;
}
DDP_API StateDict to_state_dict(const c10::IValue& state);

/// Whether an object has an additional state for each rank.
template <typename Stateful, typename = void>
struct HasRankState : std::false_type {};
template <typename Stateful>
struct HasRankState<
    Stateful,
    std::void_t<decltype(std::declval<Stateful&>().rank_state_dict())>>
    : std::true_type {};

/// Whether an object has epochs, as samplers do.
template <typename Stateful, typename = void>
struct HasEpoch : std::false_type {};
template <typename Stateful>
struct HasEpoch<
    Stateful,
    std::enable_if_t<std::is_convertible_v<
        decltype(std::declval<const Stateful&>().epoch()),
        int64_t>>> : std::true_type {};

DDP_API void run_all(const std::vector<std::function<void()>>& functions);

/// Throws `c10::ValueError` unless `good` is true.
DDP_API void check_kind(const std::string& name, bool good, const char* kind);

/// Whether a part can check a state before loading the state.
template <typename Part, typename State, typename = void>
inline constexpr bool plans_v = false;
template <typename Part, typename State>
inline constexpr bool plans_v<
    Part,
    State,
    std::void_t<decltype(std::declval<Part&>().plan_state_dict(
        std::declval<const State&>()))>> = true;

/// Converts a state to the type that the part's `state_dict` returns.
template <typename State>
auto state_of(const c10::IValue& state) {
  if constexpr (std::is_same_v<State, c10::IValue>) {
    return state;
  } else {
    return to_state_dict(state);
  }
}

} // namespace detail

template <typename Number>
std::enable_if_t<std::is_arithmetic_v<Number>, TrainingState&> TrainingState::
    add(const std::string& name, Number& value) {
  return add_part(detail::local_part(
      name,
      [&value]() -> c10::IValue {
        if constexpr (std::is_same_v<Number, bool>) {
          return value;
        } else if constexpr (std::is_integral_v<Number>) {
          return static_cast<int64_t>(value);
        } else {
          return static_cast<double>(value);
        }
      },
      [&value, name](c10::IValue state) -> detail::Commit {
        if (state.isTensor() && state.toTensor().numel() == 1) {
          state = state.toTensor().item(); // as Python's programs save numbers
        }
        const bool integral = state.isInt() || state.isBool();
        detail::check_kind(
            name,
            integral || (std::is_floating_point_v<Number> && state.isDouble()),
            std::is_floating_point_v<Number> ? "number" : "whole number");
        if constexpr (std::is_integral_v<Number>) {
          const auto wide = state.isInt() ? state.toInt() : state.toBool();
          detail::check_kind(
              name,
              static_cast<int64_t>(static_cast<Number>(wide)) == wide,
              "number that fits its type");
        }
        const auto number = state.isDouble() ? Number(state.toDouble())
            : state.isInt()                  ? Number(state.toInt())
                                             : Number(state.toBool());
        return [&value, number] { value = number; };
      }));
}

template <typename Generator>
TrainingState& TrainingState::add_generator(
    const std::string& name,
    Generator& generator) {
  return add_part(detail::per_rank_part(
      name,
      [&generator] { return c10::IValue(generator_state(generator)); },
      [&generator, name](const c10::IValue& state) -> detail::Commit {
        detail::check_kind(name, state.isTensor(), "generator's state");
        auto loaded = generator;
        set_generator_state(loaded, state.toTensor());
        return [&generator, loaded] { generator = loaded; };
      },
      [&generator](uint64_t seed) -> detail::Commit {
        return [&generator, seed] {
          generator.seed(static_cast<typename Generator::result_type>(seed));
        };
      }));
}

template <typename Stateful, typename>
TrainingState& TrainingState::add(const std::string& name, Stateful& part) {
  using State = std::decay_t<decltype(part.state_dict())>;
  constexpr bool kPlans = detail::plans_v<Stateful, State>;
  auto whole = detail::local_part(
      name,
      [&part] { return detail::to_ivalue(part.state_dict()); },
      [&part](const c10::IValue& saved) -> detail::Commit {
        auto state = detail::state_of<State>(saved);
        if constexpr (kPlans) {
          return part.plan_state_dict(state);
        } else {
          return [&part, state] { part.load_state_dict(state); };
        }
      });
  whole.collective = true;
  // An optimizer can be in a `Join` since its step communicates.
  whole.sharded = std::is_base_of_v<torch::optim::Optimizer, Stateful> &&
      std::is_base_of_v<Joinable, Stateful>;
  whole.unchecked = !kPlans;
  if constexpr (detail::HasEpoch<Stateful>::value) {
    whole.epoch = [&part] { return part.epoch(); };
    whole.sampler = kPlans && std::is_same_v<State, StateDict>;
  }
  add_part(std::move(whole));
  if constexpr (detail::HasRankState<Stateful>::value) {
    if (!part.rank_state_dict().isNone()) {
      auto own = detail::per_rank_part(
          name + "_of_each_rank",
          [&part] { return part.rank_state_dict(); },
          [&part](const c10::IValue& state) -> detail::Commit {
            return [&part, state] { part.load_rank_state_dict(state); };
          });
      own.optional = true;
      own.collective = true;
      own.unchecked = true;
      add_part(std::move(own));
    }
  }
  return *this;
}

} // namespace ddp
