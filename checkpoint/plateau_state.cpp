#include <checkpoint/plateau_state.h>

#include <ddp/checkpoint/training_state.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>

// LibTorch's scheduler keeps its state private and has no way to save it. The
// language checks no access in the arguments of an explicit instantiation
// ([temp.spec]), so that one may name private members; the friend that it
// defines hands them out.

namespace ddp::detail {
namespace {

using c10::IValue;
using Scheduler = torch::optim::ReduceLROnPlateauScheduler;

struct Fields {
  float& best;
  int& num_bad_epochs;
  int& cooldown_counter;
  int& last_epoch;
};

Fields fields_of(Scheduler& scheduler);

template <
    auto best,
    auto num_bad_epochs,
    auto cooldown_counter,
    auto last_epoch>
struct Opened {
  friend Fields fields_of(Scheduler& scheduler) {
    return {
        scheduler.*best,
        scheduler.*num_bad_epochs,
        scheduler.*cooldown_counter,
        scheduler.*last_epoch};
  }
};

template struct Opened<
    &Scheduler::best,
    &Scheduler::num_bad_epochs,
    &Scheduler::cooldown_counter,
    &Scheduler::last_epoch>;

constexpr const char* kBest = "best";
constexpr const char* kNumBadEpochs = "num_bad_epochs";
constexpr const char* kCooldownCounter = "cooldown_counter";
constexpr const char* kLastEpoch = "last_epoch";

} // namespace

IValue plateau_state(Scheduler& scheduler) {
  const auto fields = fields_of(scheduler);
  c10::impl::GenericDict dict(c10::AnyType::get(), c10::AnyType::get());
  dict.insert(kBest, static_cast<double>(fields.best));
  dict.insert(kNumBadEpochs, fields.num_bad_epochs);
  dict.insert(kCooldownCounter, fields.cooldown_counter);
  dict.insert(kLastEpoch, fields.last_epoch);
  return dict;
}

std::function<void()> plan_plateau_state(
    const std::string& name,
    Scheduler& scheduler,
    const IValue& state) {
  const auto number = [&](const char* key, bool integral) -> IValue {
    const bool there =
        state.isGenericDict() && state.toGenericDict().contains(key);
    const auto value = there ? state.toGenericDict().at(key) : IValue();
    check_kind(
        name,
        value.isInt() || (!integral && value.isDouble()),
        "plateau scheduler's");
    return value;
  };
  const auto best = number(kBest, false).toScalar().to<float>();
  const auto bad = number(kNumBadEpochs, true).toScalar().to<int>();
  const auto cooldown = number(kCooldownCounter, true).toScalar().to<int>();
  const auto last = number(kLastEpoch, true).toScalar().to<int>();
  return [&scheduler, best, bad, cooldown, last] {
    const auto fields = fields_of(scheduler);
    fields.best = best;
    fields.num_bad_epochs = bad;
    fields.cooldown_counter = cooldown;
    fields.last_epoch = last;
  };
}

} // namespace ddp::detail
