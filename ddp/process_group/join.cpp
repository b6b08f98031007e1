#include <ddp/join.h>

#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/process_group/wait_report.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <exception>
#include <set>

// How it works
//
// Before each collective, ranks with inputs report their call, by an all-reduce
// of one number for each rank. A rank without inputs reports in each of these
// all-reduces that it has no inputs, and runs the calls of the other ranks
// until no rank has inputs.

namespace ddp {
namespace {

/// A rank warns after this number of steps without inputs.
constexpr int64_t kManySteps = 1000;

/// A rank's number has 16 bits for the number of joinables, 16 for the index of
/// the joinable that makes a call, and above these the call, from 1; 0 without
/// inputs.
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

namespace detail {

/// The state that a `Join` and its joinables share.
struct JoinState {
  JoinState(
      ProcessGroup its_group,
      const Join::Joinables& all,
      const JoinOptions& its_options);

  JoinStep notify_join_context(const Joinable& joinable, int64_t call);
  bool shares(const Joinable& joinable) const;
  void run_main_hooks();
  void complete_before(const Joinable& next);
  std::vector<int64_t> exchange(int64_t code);
  JoinStep step_of(const std::vector<int64_t>& codes, int64_t code);
  void release();

  ProcessGroup group;
  JoinOptions options;
  std::vector<Joinable*> joinables; // empty once the join has ended
  /// The joinables whose main hook is not complete.
  std::vector<Joinable*> in_main_hook;
  int64_t root = group.size() - 1;
  const int exceptions_at_construction = std::uncaught_exceptions();
};

JoinState::JoinState(
    ProcessGroup its_group,
    const Join::Joinables& all,
    const JoinOptions& its_options)
    : group(std::move(its_group)), options(its_options) {
  if (!options.enable()) {
    return;
  }
  DDP_CHECK_VALUE(!all.empty(), "Join: the list of joinables is empty");
  std::set<const Joinable*> listed;
  for (Joinable& each : all) {
    DDP_CHECK_VALUE(
        !each.join_,
        "Join: a Reducer or other Joinable is already in another Join");
    DDP_CHECK_VALUE(
        listed.insert(&each).second,
        "Join: a Reducer or other Joinable is in the list twice");
  }
  auto& joined = *detail::ProcessGroupImpl::of(group).joined;
  DDP_CHECK_VALUE(
      !joined,
      "another Join exists on this group, and the two Joins would wait for "
      "each other: pass all joinables to one Join, as in Join(group, "
      "{first.joinable(), second.joinable()})");
  joined = true;
  for (Joinable& each : all) {
    each.join_ = this;
    joinables.push_back(&each);
  }
}

void JoinState::run_main_hooks() {
  if (joinables.empty()) {
    return;
  }
  for (int64_t steps = 1;; ++steps) {
    const auto codes = exchange(static_cast<int64_t>(joinables.size()));
    const auto code = *std::max_element(codes.begin(), codes.end());
    if (call_in(code) < 0) {
      break;
    }
    const auto step = step_of(codes, code);
    if (options.throw_on_early_termination()) {
      terminate_early("Rank ", group.rank(), " exhausted all inputs.");
    }
    if (steps == kManySteps) {
      TORCH_WARN(detail::format(
          "rank {} has had no inputs for {} steps of the other ranks: "
          "distribute the inputs more evenly",
          group.rank(),
          kManySteps));
    }
    auto* next = joinables[static_cast<size_t>(place_in(code))];
    complete_before(*next);
    next->main_hook(step);
    if (shares(*next)) {
      in_main_hook.push_back(next);
    } else {
      next->complete_main_hook();
    }
  }
  for (auto* each : in_main_hook) {
    each->complete_main_hook();
  }
  for (auto* each : joinables) {
    each->post_hook(root);
  }
}

/// Whether other joinables may begin a step before this step ends.
bool JoinState::shares(const Joinable& joinable) const {
  return joinable.overlaps() &&
      std::count_if(joinables.begin(), joinables.end(), [](auto* each) {
        return each->overlaps();
      }) > 1;
}

/// Completes the main hooks that cannot overlap with the one of `next`.
void JoinState::complete_before(const Joinable& next) {
  std::vector<Joinable*> left;
  for (auto* each : in_main_hook) {
    if (next.overlaps() && each->overlaps() && each != &next) {
      left.push_back(each);
    } else {
      each->complete_main_hook();
    }
  }
  in_main_hook = std::move(left);
}

JoinStep JoinState::notify_join_context(
    const Joinable& joinable,
    int64_t call) {
  DDP_CHECK_VALUE(
      call >= 0 && call < kCalls,
      "Joinable::notify_join_context: `call` is {}, expected 0 to {}",
      call,
      kCalls - 1);
  const heartbeat::Activity activity("Join");
  const auto place = std::find(joinables.begin(), joinables.end(), &joinable) -
      joinables.begin();
  const auto code = static_cast<int64_t>(joinables.size()) +
      kPart * (place + kPart * (call + 1));
  const auto step = step_of(exchange(code), code);
  if (options.throw_on_early_termination() && step.live < group.size()) {
    release();
    terminate_early(
        "Detected at least one rank that exhausted inputs. Throwing across all "
        "ranks.");
  }
  return step;
}

/// Returns the number of each rank.
std::vector<int64_t> JoinState::exchange(int64_t code) {
  auto message = at::zeros({group.size()}, at::kLong);
  auto* codes = message.mutable_data_ptr<int64_t>();
  codes[group.rank()] = code;
  const heartbeat::Activity activity("all_reduce", group.size(), "Long");
  auto& impl = ProcessGroupImpl::of(group);
  guarded(impl, "all_reduce", [&] {
    if (!impl.group) {
      return;
    }
    const auto check = [&] {
      for (auto* each : joinables) {
        each->check_wait(group);
      }
    };
    try {
      wait(impl, start_all_reduce(impl, message, ReduceOp::kSum), check);
    } catch (const WaitFailure& failure) {
      // The failed rank did not start this all-reduce: its group fails, too.
      if (impl.failure_store && failure.kind == WaitFailure::Kind::kKnown) {
        impl.failure_store->report(
            impl.scope,
            this_rank(impl) + ": Join failed" + failure.cause,
            Failure::Kind::kConsequence);
      }
      throw;
    }
  });
  for (int64_t rank = 1; rank < group.size(); ++rank) {
    DDP_CHECK_VALUE(
        count_in(codes[rank]) == count_in(codes[0]),
        "Join: all ranks must list the same joinables: rank {} has {}, rank 0 "
        "has {}",
        rank,
        count_in(codes[rank]),
        count_in(codes[0]));
  }
  return {codes, codes + group.size()};
}

JoinStep JoinState::step_of(const std::vector<int64_t>& codes, int64_t code) {
  JoinStep step;
  step.call = call_in(code);
  step.live = 0;
  for (size_t rank = 0; rank < codes.size(); ++rank) {
    if (call_in(codes[rank]) < 0) {
      continue;
    }
    DDP_CHECK(
        codes[rank] == code,
        "Join: ranks with inputs made different calls at the same time: rank "
        "{} announced call {} of joinable {}, another rank call {} of joinable "
        "{}",
        rank,
        call_in(codes[rank]),
        place_in(codes[rank]),
        step.call,
        place_in(code));
    ++step.live;
    step.last_live = static_cast<int64_t>(rank);
  }
  step.divisor =
      options.divide_by_initial_world_size() ? group.size() : step.live;
  root = step.last_live;
  return step;
}

void JoinState::release() {
  if (!joinables.empty()) {
    *ProcessGroupImpl::of(group).joined = false;
  }
  for (auto* each : joinables) {
    each->join_ = nullptr;
  }
  joinables.clear();
  in_main_hook.clear();
}

} // namespace detail

Joinable::~Joinable() {
  if (join_) {
    join_->release();
  }
}

std::optional<JoinStep> Joinable::notify_join_context(int64_t call) {
  if (!join_) {
    return std::nullopt;
  }
  return join_->notify_join_context(*this, call);
}

bool Joinable::shares_steps() const {
  return join_ && join_->shares(*this);
}

bool Joinable::throws_early() const {
  return join_ && join_->options.throw_on_early_termination();
}

Join::Join(
    const ProcessGroup& group,
    const Joinables& joinables,
    const JoinOptions& options)
    : state_(std::make_unique<detail::JoinState>(group, joinables, options)) {}

Join::~Join() noexcept(false) {
  if (std::uncaught_exceptions() > state_->exceptions_at_construction) {
    state_->release();
  } else {
    finish();
  }
}

void Join::finish() {
  const detail::heartbeat::Activity activity("Join::finish");
  try {
    state_->run_main_hooks();
  } catch (...) {
    state_->release();
    throw;
  }
  state_->release();
}

} // namespace ddp
