#include <ddp/process_group/agreement/on_rank_0.h>

#include <common/poll_until.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/process_group/process_group_impl.h>
#include <ddp/process_group/wait_report.h>
#include <ddp/support/detached_task.h>
#include <ddp/support/error_text.h>

namespace ddp::detail {
namespace {

// The time in which other ranks can complete work that has failed on this rank.
constexpr std::chrono::seconds kArrivalPatience(5);
constexpr std::chrono::milliseconds kArrivalInterval(20);

/// While this object exists, shows this rank's activity to the ranks that wait
/// for it.
class Presence {
 public:
  explicit Presence(const ProcessGroup& group)
      : group_(ProcessGroupImpl::of(group)) {
    if (group_.failure_store) {
      group_.failure_store->mark_waiting(
          group_.scope, group_.launched, own_call());
    }
  }
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;
  ~Presence() {
    if (group_.failure_store) {
      group_.failure_store->leave();
    }
  }

 private:
  ProcessGroupImpl& group_;
};

/// The text of the exception of `work`, or "".
std::string failure_of(const std::function<void()>& work) {
  try {
    work();
    return "";
  } catch (const std::exception& error) {
    const auto text = error_text(error);
    return text.empty() ? "an exception without a message" : text;
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

std::string failed_on(
    int64_t rank,
    const char* operation,
    const ProcessGroup& group,
    const std::string& failure) {
  const auto place = group.size() == 1
      ? ""
      : detail::format(" on rank {} of {}", rank, group.size());
  return detail::format("{}{}: {}", operation, place, failure);
}

/// Throws the first failure that is not empty.
void throw_failures(
    const char* operation,
    const ProcessGroup& group,
    const std::vector<std::string>& failures) {
  for (size_t r = 0; r < failures.size(); ++r) {
    const auto rank = static_cast<int64_t>(r);
    DDP_CHECK(
        failures[r].empty(), failed_on(rank, operation, group, failures[r]));
  }
}

/// Counts the ranks that have ended one piece of collective work.
class Arrivals {
 public:
  explicit Arrivals(ProcessGroupImpl& group)
      : store_(group.store),
        key_(detail::format(
            "{}/arrivals_{}",
            group.scope,
            group.comparisons["arrivals"]++)),
        size_(group.size),
        timeout_(group.timeout) {}

  /// Adds `count` arrived ranks. Returns whether all ranks have arrived.
  bool add(int64_t count) const {
    if (!store_ || !store_->hasExtendedApi()) {
      return true; // cannot be counted
    }
    return answered_within(timeout_, [*this, count] {
      const auto come = store_->add(key_, count);
      if (come == size_ || come == 0) { // 0: another rank deleted the key
        store_->deleteKey(key_);
        return true;
      }
      return false;
    });
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  std::string key_;
  int64_t size_;
  std::chrono::milliseconds timeout_;
};

/// If other ranks wait in collectives of the work, which this rank will not
/// start, these collectives fail with `failure`, and this function throws it.
void await_all(
    const char* operation,
    const ProcessGroup& group,
    const Arrivals& arrivals,
    const std::string& failure) {
  bool all = arrivals.add(1);
  all = all || poll_for(kArrivalPatience, kArrivalInterval, [&] {
          return arrivals.add(0);
        });
  if (!all) {
    const auto text = failed_on(group.rank(), operation, group, failure);
    report_failure(group, text);
    DDP_THROW(Error, text);
  }
}

} // namespace

void on_rank_0(
    const char* operation,
    const ProcessGroup& group,
    const std::function<void()>& work) {
  const heartbeat::Activity activity(operation);
  std::string own_failure;
  if (group.rank() == 0) {
    const Presence presence(group);
    own_failure = failure_of(work);
  }
  throw_failures(operation, group, {group.broadcast(own_failure)});
}

void on_each_rank(
    const char* operation,
    const ProcessGroup& group,
    const std::function<void()>& work) {
  const heartbeat::Activity activity(operation);
  throw_failures(operation, group, group.all_gather(failure_of(work)));
}

void on_each_rank_together(
    const char* operation,
    const ProcessGroup& group,
    const std::function<void()>& work) {
  const heartbeat::Activity activity(operation);
  const Arrivals arrivals(ProcessGroupImpl::of(group));
  const auto failure = failure_of(work);
  if (failure.empty()) {
    arrivals.add(1);
  } else {
    await_all(operation, group, arrivals, failure);
  }
  throw_failures(operation, group, group.all_gather(failure));
}

} // namespace ddp::detail
