#include <ddp/process_group/collective_wait.h>

#include <ddp/backends/common/backend_work.h>
#include <ddp/backends/mpi.h>
#include <ddp/failure/debug_level.h>
#include <ddp/failure/elastic_pause.h>
#include <ddp/failure/flight_recorder.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/process_group/wait_report.h>
#include <ddp/support/detached_task.h>
#include <ddp/support/error_text.h>

#include <thread>

namespace ddp::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Long enough that a healthy step sends no request to the store.
constexpr milliseconds kFirstSlice{200};
constexpr milliseconds kSlice{250};
constexpr milliseconds kWaitSlice{50};
// The number of additional reads of the failure store after a connection ended:
// on a busy machine, the reason may take as long to arrive as each read.
constexpr int kCauseLooks = 10;
constexpr milliseconds kLongWait{2000};
constexpr const char* kOwnFailure = "this rank failed: ";

/// Throws with the reason for an error of the backend. `state` is the result of
/// `mark_waiting`, if this rank has called it.
[[noreturn]] void explain(
    const ProcessGroupImpl& group,
    int64_t number,
    const std::exception& error,
    std::optional<WaitState> state) {
  const auto text = error_text(error);
  const auto reason = reason_of_end(group, text);
  if (!group.failure_store) {
    throw WaitFailure{
        c10::str(": ", reason, own_remedy()), WaitFailure::Kind::kKnown};
  }
  // After a timeout, all other ranks have had time to report.
  const bool timed_out = reason.find(backends::kTimedOut) != std::string::npos;
  const bool waited_long = timed_out || state;
  if (!state) {
    state = group.failure_store->mark_waiting(
        group.scope, group.launched, own_call());
  }
  auto failures = group.failure_store->read(group.scope);
  if (!timed_out) {
    for (int look = 0; failures.empty() && look < kCauseLooks; ++look) {
      std::this_thread::sleep_for(kWaitSlice);
      failures = group.failure_store->read(group.scope);
    }
  }
  if (!failures.empty()) {
    throw caused_by(failures);
  }
  throw WaitFailure{
      c10::str(": ", reason, all_ranks(group, number, text, waited_long)),
      WaitFailure::Kind::kNew,
      state.value_or(WaitState()).lines};
}

void look_for_change() {
  if (elastic_pause::waits_are_ended()) {
    throw WaitFailure{
        " because the nodes of the job change", WaitFailure::Kind::kKnown};
  }
}

template <typename FinishedWithin>
bool has_finished(FinishedWithin& finished_within) {
  try {
    return finished_within(milliseconds(1)); // 0 has no limit in c10d
  } catch (...) { // a consequence of another rank's failure
    return false;
  }
}

/// Waits until `finished_within` returns true. Throws if `finished_within`
/// throws or another rank fails.
template <typename FinishedWithin>
void wait_in_slices(
    const ProcessGroupImpl& group,
    int64_t number,
    FinishedWithin&& finished_within) {
  const auto start = Clock::now();
  const auto long_wait =
      std::min({kLongWait, group.timeout / 2, group.wait_notice / 2});
  std::optional<WaitState> state;
  auto next_warning = group.wait_notice;
  bool told = false;
  try {
    for (auto slice = kFirstSlice; !finished_within(slice); slice = kSlice) {
      try {
        look_for_failure(group);
      } catch (const WaitFailure&) {
        if (!has_finished(finished_within)) {
          throw;
        }
        break; // before the other rank failed
      }
      const auto waited = Clock::now() - start;
      if (group.failure_store && !state && waited > long_wait) {
        state = group.failure_store->mark_waiting(
            group.scope, group.launched, own_call());
      }
      if (!told && waited > next_warning) {
        told = tell_of_wait(group, number, state);
        next_warning += group.wait_notice;
      }
    }
    if (state) {
      group.failure_store->leave();
    }
  } catch (const std::exception& error) {
    explain(group, number, error, state);
  }
}

/// Sleeps, but lets the group's operations progress.
void pass(milliseconds time, const ProcessGroupImpl& group) {
  if (needs_calls(group)) {
    backends::mpi::library().drive(Clock::now() + time, [] { return false; });
  } else {
    std::this_thread::sleep_for(time);
  }
}

/// Waits for `completion`, at most for `slice`; returns whether it is ready.
bool ready_within(
    milliseconds slice,
    const std::future<void>& completion,
    const ProcessGroupImpl& group) {
  const auto ready = [&](milliseconds time) {
    return completion.wait_for(time) == std::future_status::ready;
  };
  if (!needs_calls(group)) {
    return ready(slice);
  }
  backends::mpi::library().drive(
      Clock::now() + slice, [&] { return ready(milliseconds(0)); });
  return ready(milliseconds(0));
}

/// Returns a future with a timed wait that is ready when `future` is complete.
std::future<void> completion_of(c10::ivalue::Future& future) {
  auto complete = std::make_shared<std::promise<void>>();
  auto completion = complete->get_future();
  future.addCallback(
      [complete = std::move(complete)](c10::ivalue::Future&) {
        complete->set_value();
      },
      /*uses_future=*/false);
  return completion;
}

c10::Backtrace frames() {
  return shows_frames() ? c10::get_lazy_backtrace() : nullptr;
}

void abort_group(
    const ProcessGroup& group,
    const std::string& text,
    Failure::Kind kind) {
  auto& impl = ProcessGroupImpl::of(group);
  if (!impl.first_error.reason().empty()) {
    return;
  }
  impl.first_error.set(kOwnFailure + text);
  if (impl.failure_store) {
    impl.failure_store->report(impl.scope, text, kind);
  }
}

} // namespace

PeerError::PeerError(const std::string& text)
    : DistBackendError(text, frames()) {}

bool needs_calls(const ProcessGroupImpl& group) {
  return group.communicator && backends::mpi::library().needs_calls();
}

void defer(const ProcessGroupImpl& group, const std::function<void()>& launch) {
  group.communicator ? backends::mpi::library().defer(launch) : launch();
}

void check_nodes(int64_t size) {
  if (elastic_pause::waits_are_ended()) {
    heartbeat::failed_by_another(size);
    throw PeerError("the nodes of the job change");
  }
}

void look_for_failure(const ProcessGroupImpl& group) {
  look_for_change();
  const auto own = group.first_error.reason();
  if (!own.empty()) {
    throw WaitFailure{
        " because another collective failed: " + own,
        WaitFailure::Kind::kKnown};
  }
  if (!group.failure_store) {
    return;
  }
  const auto failures = group.failure_store->read(group.scope);
  if (!failures.empty()) {
    throw caused_by(failures);
  }
}

void check_usable(const ProcessGroupImpl& group, const char* operation) {
  DDP_CHECK(!group.shut_down, "{}: the process group was shut down", operation);
  const auto reason = group.first_error.reason();
  if (!reason.empty()) {
    throw PeerError(c10::str(
        operation, ": the process group has already failed: ", reason));
  }
}

void fail(
    ProcessGroupImpl& group,
    const char* operation,
    const WaitFailure& failure) {
  using Kind = WaitFailure::Kind;
  auto message = failure.cause;
  if (failure.kind == Kind::kNew || failure.kind == Kind::kKnown) {
    message = c10::str(
        this_rank(group), ": ", failed_operation(group, operation), message);
  }
  const bool is_own = group.first_error.reason().rfind(kOwnFailure, 0) == 0;
  if (failure.kind != Kind::kCommon && !is_own) {
    heartbeat::failed_by_another(group.size);
  }
  if (failure.kind == Kind::kNew && group.failure_store) {
    message = group.failure_store->report_consequence(
        group.scope, message, failure.earlier_lines);
  }
  if (group.failure_store) { // the others have read how this rank waits
    group.failure_store->leave();
  }
  group.first_error.set(message);
  if (failure.kind == Kind::kCommon) {
    DDP_THROW(ValueError, message);
  }
  throw PeerError(message + debug::flight_recorder::dump_for(message));
}

void fail(
    ProcessGroupImpl& group,
    const char* operation,
    const std::exception& error) {
  check_usable(group, operation); // the group may have broken meanwhile
  if (const auto* peer = dynamic_cast<const PeerError*>(&error)) {
    throw PeerError(*peer); // its text names the operation
  }
  // A backend starts no collective after a failed one, which the program may
  // not have waited for.
  if (group.failure_store &&
      dynamic_cast<const c10::DistBackendError*>(&error)) {
    try {
      explain(group, group.launched, error, std::nullopt);
    } catch (const WaitFailure& failure) {
      fail(group, operation, failure);
    }
  }
  throw c10::DistBackendError(
      detail::format(
          "{}: {}: {}",
          this_rank(group),
          failed_operation(group, operation),
          error_text(error)),
      frames());
}

void wait(
    ProcessGroupImpl& group,
    const Collective& collective,
    const std::function<void()>& check) {
  if (collective.on_host) {
    wait_in_slices(group, collective.number, [&](milliseconds slice) {
      const bool has_ended = backends::ends_within(slice, *collective.work);
      if (!has_ended && check) {
        check();
      }
      return has_ended;
    });
    return;
  }
  try {
    collective.work->wait();
  } catch (const std::exception& error) {
    explain(group, collective.number, error, std::nullopt);
  }
}

void wait_with_timeout(
    const ProcessGroupImpl& group,
    const std::function<bool(milliseconds slice)>& finished_within,
    const std::function<std::string()>& clue) {
  const auto deadline = Clock::now() + group.timeout;
  wait_in_slices(group, group.launched, [&](milliseconds slice) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    if (finished_within(std::clamp(left, milliseconds(0), slice))) {
      return true;
    }
    DDP_CHECK(
        left > slice,
        backends::timed_out_after(group.timeout),
        clue ? clue() : "");
    return false;
  });
}

void wait_for(
    const ProcessGroup& group,
    c10::ivalue::Future& future,
    const char* operation,
    const std::function<void()>& check) {
  auto& impl = ProcessGroupImpl::of(group);
  guarded(impl, operation, [&] {
    const auto completion = completion_of(future);
    wait_with_timeout(impl, [&](milliseconds slice) {
      if (!ready_within(slice, completion, impl)) {
        if (check) {
          check();
        }
        return false;
      }
      future.waitAndThrow();
      return true;
    });
  });
}

void wait_for(
    const ProcessGroup& group,
    const c10::intrusive_ptr<c10d::Store>& store,
    const std::string& key,
    const char* operation,
    const std::function<std::string()>& clue) {
  auto& impl = ProcessGroupImpl::of(group);
  guarded(impl, operation, [&] {
    // A request to the store may outlast a slice or never return. The next
    // request starts only after the answer.
    std::future<bool> there;
    wait_with_timeout(
        impl,
        [&](milliseconds slice) {
          const auto end = Clock::now() + slice;
          do {
            if (!there.valid()) {
              there =
                  run_detached([store, key] { return store->check({key}); });
            }
            if (there.wait_until(end) == std::future_status::ready &&
                there.get()) {
              return true;
            }
            pass(kWaitSlice, impl);
          } while (Clock::now() < end);
          return false;
        },
        clue);
  });
}

void report_failure(
    const ProcessGroup& group,
    const std::string& text) noexcept {
  if (heartbeat::is_failed_by_another()) {
    const auto rank = this_rank(ProcessGroupImpl::of(group));
    abort_group(group, rank + " failed: " + text, Failure::Kind::kConsequence);
  } else {
    abort_group(group, text, Failure::Kind::kOwn);
  }
}

void fail_on_all(const ProcessGroup& group, const std::string& text) {
  abort_group(group, text, Failure::Kind::kCommon);
  DDP_THROW(ValueError, text);
}

} // namespace ddp::detail
