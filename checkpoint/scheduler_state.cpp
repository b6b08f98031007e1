#include <ddp/checkpoint/training_state.h>
#include <ddp/support/containers.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>

namespace ddp {
namespace {

using c10::IValue;
using c10::impl::GenericDict;
using Plateau = torch::optim::ReduceLROnPlateauScheduler;

/// The number of calls of `step`, which is a protected member.
struct StepCount : torch::optim::LRScheduler {
  static unsigned& of(LRScheduler& scheduler) {
    return scheduler.*(&StepCount::step_count_);
  }
};

// ReduceLROnPlateauScheduler has private state and no function to save it. C++
// does not check access in the arguments of an explicit instantiation
// ([temp.spec]), so these may name private members; the friend function returns
// them.
struct Fields {
  float& best;
  int& num_bad_epochs;
  int& cooldown_counter;
  int& last_epoch;
};

Fields fields_of(Plateau& scheduler);

template <
    auto best,
    auto num_bad_epochs,
    auto cooldown_counter,
    auto last_epoch>
struct Opened {
  friend Fields fields_of(Plateau& scheduler) {
    return {
        scheduler.*best,
        scheduler.*num_bad_epochs,
        scheduler.*cooldown_counter,
        scheduler.*last_epoch};
  }
};

template struct Opened<
    &Plateau::best,
    &Plateau::num_bad_epochs,
    &Plateau::cooldown_counter,
    &Plateau::last_epoch>;

// Python's names for these members.
constexpr const char* kBest = "best";
constexpr const char* kNumBadEpochs = "num_bad_epochs";
constexpr const char* kCooldownCounter = "cooldown_counter";
constexpr const char* kLastEpoch = "last_epoch";
constexpr const char* kStepCount = "_step_count";

/// Throws `c10::ValueError` with the part's `name` if there is no number.
c10::Scalar number_in(
    const IValue& state,
    const std::string& name,
    const char* key,
    bool integral = true) {
  const bool there =
      state.isGenericDict() && state.toGenericDict().contains(key);
  const auto value = there ? state.toGenericDict().at(key) : IValue();
  detail::check_kind(
      name, value.isInt() || (!integral && value.isDouble()), "scheduler's");
  return value.toScalar();
}

// LibTorch's `step` sets the learning rates of the epoch `count`, and then adds
// 1 to the count. Python's `step`, which the constructor also calls, adds 1 to
// `last_epoch`, and then sets the learning rates of this epoch.
GenericDict to_python(unsigned count) {
  auto dict = detail::new_dict();
  dict.insert(kLastEpoch, int64_t{count} - 1);
  dict.insert(kStepCount, int64_t{count});
  return dict;
}

// Earlier versions of this library saved the count as `last_epoch`, without
// `_step_count`. Python's own `_step_count` may start later than `last_epoch`.
int64_t count_in(const IValue& state, const std::string& name) {
  const auto last_epoch = number_in(state, name, kLastEpoch).to<int64_t>();
  return state.toGenericDict().contains(kStepCount) ? last_epoch + 1
                                                    : last_epoch;
}

} // namespace

TrainingState& TrainingState::add(
    const std::string& name,
    torch::optim::LRScheduler& scheduler) {
  return add_part(detail::local_part(
      name,
      [&scheduler] { return IValue(to_python(StepCount::of(scheduler))); },
      [&scheduler, name](const IValue& state) -> detail::Commit {
        const auto count = count_in(state, name);
        return [&scheduler, count] {
          StepCount::of(scheduler) = static_cast<unsigned>(count);
        };
      }));
}

TrainingState& TrainingState::add(const std::string& name, Plateau& scheduler) {
  return add_part(detail::local_part(
      name,
      [&scheduler] {
        const auto fields = fields_of(scheduler);
        auto dict = detail::new_dict();
        dict.insert(kBest, static_cast<double>(fields.best));
        dict.insert(kNumBadEpochs, fields.num_bad_epochs);
        dict.insert(kCooldownCounter, fields.cooldown_counter);
        dict.insert(kLastEpoch, fields.last_epoch);
        return IValue(dict);
      },
      [&scheduler, name](const IValue& state) -> detail::Commit {
        const auto best = number_in(state, name, kBest, false).to<float>();
        const auto bad = number_in(state, name, kNumBadEpochs).to<int>();
        const auto cooldown =
            number_in(state, name, kCooldownCounter).to<int>();
        const auto last = number_in(state, name, kLastEpoch).to<int>();
        return [&scheduler, best, bad, cooldown, last] {
          const auto fields = fields_of(scheduler);
          fields.best = best;
          fields.num_bad_epochs = bad;
          fields.cooldown_counter = cooldown;
          fields.last_epoch = last;
        };
      }));
}

} // namespace ddp
