#include <ddp/join.h>

#include <ddp/failure/heartbeat.h>
#include <ddp/process_group/process_group_impl.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <exception>
#include <set>

// How it works
//
// Ranks with inputs say before each collective what they are about to do: one
// all-reduce of a number for each rank. A rank without inputs says there again
// and again that it has none, and does what the others say until none has any.

namespace ddp {
namespace {

/// After so many steps without inputs of its own, a rank says so.
constexpr int64_t kManySteps = 1000;

/// That number has 16 bits for how many joinables the rank lists, 16 for which
/// of them makes a call, and above these the call, from 1; 0 without inputs.
constexpr int64_t kPart = 1 << 16;
constexpr int64_t kCalls = (1 << 30) - 1;

int64_t count_in(int64_t code) {
  return code % kPart;
}

int64_t place_in(int64_t code) {
  return code / kPart % kPart;
}

/// -1 without inputs.
int64_t call_in(int64_t code) {
  return code / kPart / kPart - 1;
}

template <typename... Parts>
[[noreturn]] void terminate_early(const Parts&... parts) {
  throw EarlyTermination(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
      c10::str(parts...));
}

} // namespace

Joinable::~Joinable() {
  if (join_) {
    join_->release();
  }
}

std::optional<JoinStep> Joinable::announce(int64_t call) {
  if (!join_) {
    return std::nullopt;
  }
  return join_->announce(*this, call);
}

bool Joinable::shares_steps() const {
  return join_ && join_->shares(*this);
}

bool Joinable::throws_early() const {
  return join_ && join_->options_.throw_on_early_termination();
}

Join::Join(
    const ProcessGroup& group,
    const Joinables& joinables,
    const JoinOptions& options)
    : group_(group),
      options_(options),
      root_(group.size() - 1),
      exceptions_at_construction_(std::uncaught_exceptions()) {
  if (!options_.enable()) {
    return;
  }
  TORCH_CHECK_VALUE(!joinables.empty(), "Join: the list of joinables is empty");
  std::set<const Joinable*> listed;
  for (Joinable& each : joinables) {
    TORCH_CHECK_VALUE(
        !each.join_, "a Reducer or other Joinable is in another Join already");
    TORCH_CHECK_VALUE(
        listed.insert(&each).second,
        "Join: a Reducer or other Joinable is in the list twice");
  }
  auto& joined = *detail::ProcessGroupImpl::of(group_).joined;
  TORCH_CHECK_VALUE(
      !joined,
      "another Join lives on this group, and the two would wait for each "
      "other: pass all that communicates to one, as in Join(group, "
      "{first.joinable(), second.joinable()})");
  joined = true;
  for (Joinable& each : joinables) {
    each.join_ = this;
    joinables_.push_back(&each);
  }
}

Join::~Join() noexcept(false) {
  if (std::uncaught_exceptions() > exceptions_at_construction_) {
    release();
  } else {
    finish();
  }
}

void Join::finish() {
  const detail::heartbeat::Activity activity("Join::finish");
  try {
    shadow();
  } catch (...) {
    release();
    throw;
  }
  release();
}

void Join::shadow() {
  if (joinables_.empty()) {
    return;
  }
  for (int64_t steps = 1;; ++steps) {
    const auto codes = exchange(static_cast<int64_t>(joinables_.size()));
    const auto code = *std::max_element(codes.begin(), codes.end());
    if (call_in(code) < 0) {
      break;
    }
    const auto step = step_of(codes, code);
    if (options_.throw_on_early_termination()) {
      terminate_early("Rank ", group_.rank(), " exhausted all inputs.");
    }
    if (steps == kManySteps) {
      TORCH_WARN(
          "rank ",
          group_.rank(),
          " has had no inputs for ",
          kManySteps,
          " steps of the others: share them out more evenly");
    }
    auto* next = joinables_[static_cast<size_t>(place_in(code))];
    complete_before(*next);
    next->shadow(step);
    shadowing_.push_back(next);
    if (!shares(*next)) {
      shadowing_.pop_back();
      next->complete_shadow();
    }
  }
  for (auto* each : shadowing_) {
    each->complete_shadow();
  }
  for (auto* each : joinables_) {
    each->end_join(root_);
  }
}

/// Whether others may begin before it ends.
bool Join::shares(const Joinable& joinable) const {
  return joinable.overlaps() &&
      std::count_if(joinables_.begin(), joinables_.end(), [](auto* each) {
        return each->overlaps();
      }) > 1;
}

/// What goes on beside others waits for itself alone.
void Join::complete_before(const Joinable& next) {
  std::vector<Joinable*> left;
  for (auto* each : shadowing_) {
    if (next.overlaps() && each->overlaps() && each != &next) {
      left.push_back(each);
    } else {
      each->complete_shadow();
    }
  }
  shadowing_ = std::move(left);
}

JoinStep Join::announce(const Joinable& joinable, int64_t call) {
  TORCH_CHECK_VALUE(
      call >= 0 && call < kCalls, "Joinable::announce: call is ", call);
  const detail::heartbeat::Activity activity("Join");
  const auto place =
      std::find(joinables_.begin(), joinables_.end(), &joinable) -
      joinables_.begin();
  const auto code = static_cast<int64_t>(joinables_.size()) +
      kPart * (place + kPart * (call + 1));
  const auto step = step_of(exchange(code), code);
  if (options_.throw_on_early_termination() && step.live < group_.size()) {
    release();
    terminate_early(
        "Detected at least one rank that exhausted inputs. Throwing across all "
        "ranks.");
  }
  return step;
}

/// Each rank's number.
std::vector<int64_t> Join::exchange(int64_t code) {
  auto message = at::zeros({group_.size()}, at::kLong);
  auto* codes = message.mutable_data_ptr<int64_t>();
  codes[group_.rank()] = code;
  group_.all_reduce(message);
  for (int64_t rank = 1; rank < group_.size(); ++rank) {
    TORCH_CHECK_VALUE(
        count_in(codes[rank]) == count_in(codes[0]),
        "Join: all ranks must list the same joinables: rank ",
        rank,
        " has ",
        count_in(codes[rank]),
        ", rank 0 has ",
        count_in(codes[0]));
  }
  return {codes, codes + group_.size()};
}

JoinStep Join::step_of(const std::vector<int64_t>& codes, int64_t code) {
  JoinStep step;
  step.call = call_in(code);
  step.live = 0;
  for (size_t rank = 0; rank < codes.size(); ++rank) {
    if (call_in(codes[rank]) < 0) {
      continue;
    }
    TORCH_CHECK(
        codes[rank] == code,
        "Join: ranks with inputs do different things at the same time: rank ",
        rank,
        " announced call ",
        call_in(codes[rank]),
        " of joinable ",
        place_in(codes[rank]),
        ", another rank call ",
        step.call,
        " of joinable ",
        place_in(code));
    ++step.live;
    step.last_live = static_cast<int64_t>(rank);
  }
  step.divisor =
      options_.divide_by_initial_world_size() ? group_.size() : step.live;
  root_ = step.last_live;
  return step;
}

void Join::release() {
  if (!joinables_.empty()) {
    *detail::ProcessGroupImpl::of(group_).joined = false;
  }
  for (auto* each : joinables_) {
    each->join_ = nullptr;
  }
  joinables_.clear();
  shadowing_.clear();
}

} // namespace ddp
