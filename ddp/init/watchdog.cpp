#include <ddp/init/watchdog.h>

#include <common/poll_until.h>
#include <ddp/backends/nccl.h>
#include <ddp/support/detached_task.h>
#include <ddp/support/error_text.h>

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <c10/util/thread_name.h>

#include <algorithm>
#include <utility>

namespace ddp::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Ranks of a large group check less often, to limit the load on the store.
constexpr milliseconds kInterval{250};
constexpr milliseconds kIntervalPerRank{1};
// Rank 0 may finish shortly before the other ranks.
constexpr auto kGrace = std::chrono::seconds(3);
constexpr auto kRecordTime = std::chrono::seconds(3);
constexpr milliseconds kReasonTime{500};
constexpr milliseconds kLaunchTime{1000};
constexpr milliseconds kLaunchInterval{5};
constexpr auto kAbortTime = std::chrono::seconds(5);

/// The error that the backend has detected; empty if none.
std::string describe(c10d::ErrorType error, milliseconds timeout) {
  switch (error) {
    case c10d::ErrorType::SUCCESS:
      return "";
    case c10d::ErrorType::TIMEOUT:
      return c10::str(
          " because a collective on the GPU was not complete after ",
          timeout.count() / 1000.0,
          " s (has another rank ended, or made a different call?)");
    default:
      return " because a collective on the GPU failed (has another rank ended? "
             "NCCL_DEBUG=WARN shows details)";
  }
}

/// Returns the path of a file with NCCL's last collectives, or "".
std::string write_flight_record(int64_t rank) {
  // The call may hang if the driver does.
  auto path = run_detached([rank]() -> std::string {
    try {
      return backends::nccl::write_flight_record(rank);
    } catch (const std::exception&) { // e.g. the disk is full
      return "";
    }
  });
  return path.wait_for(kRecordTime) == std::future_status::ready ? path.get()
                                                                 : "";
}

/// Waits for the current streams of all devices of this type that the process
/// uses.
void wait_for_devices(c10::DeviceType type) {
  const c10::impl::VirtualGuardImpl devices(type);
  const auto& hooks = at::globalContext().getAcceleratorHooksInterface(type);
  for (c10::DeviceIndex i = 0; i < devices.deviceCount(); ++i) {
    if (hooks.hasPrimaryContext(i)) {
      devices.synchronizeStream(devices.getStream({type, i}));
    }
  }
}

/// ThreadSanitizer does not support C++'s timed mutexes.
bool locks_within(milliseconds time, std::recursive_mutex& mutex) {
  return poll_for(time, kLaunchInterval, [&] { return mutex.try_lock(); });
}

void abort(c10d::Backend& backend) {
  try {
    backend.abort();
  } catch (const std::exception& error) {
    TORCH_WARN("ddp: aborting a failed group: ", error_text(error));
  }
}

} // namespace

WatchedGroup::WatchedGroup(
    ProcessGroupImpl& group,
    c10::intrusive_ptr<c10d::Backend> backend)
    : group_(group), backend_(std::move(backend)) {}

milliseconds WatchedGroup::interval() const {
  return std::max(kInterval, group_.size * kIntervalPerRank);
}

void WatchedGroup::look() {
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock || over_ || !is_suspicious()) {
    return; // locked: another thread investigates
  }
  try {
    start_detached([self = shared_from_this()] { self->investigate(); });
  } catch (const std::exception&) { // no thread: the next check retries
  }
}

/// NCCL's own thread sets the error before it aborts.
bool WatchedGroup::is_aborted() const {
  return aborted_ || backend_->getError() != c10d::ErrorType::SUCCESS;
}

void WatchedGroup::stop() {
  stop_.set_value();
  const std::lock_guard<std::mutex> lock(mutex_);
  over_ = true;
}

bool WatchedGroup::is_suspicious() {
  try {
    look_for_failure(group_);
  } catch (...) {
    return true;
  }
  const auto launch = group_.launched.load();
  const bool lasts = is_launching();
  const bool is_stuck = lasts && launch == seen_launch_;
  seen_launch_ = lasts ? launch : -1;
  return is_stuck || backend_->getError() != c10d::ErrorType::SUCCESS ||
      is_store_gone();
}

void WatchedGroup::investigate() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (over_) {
    return;
  }
  if (auto failure = find_failure()) {
    end(std::move(*failure));
    over_ = true;
  }
}

bool WatchedGroup::is_stopped_within(milliseconds time) {
  return stopped_.wait_for(time) == std::future_status::ready;
}

std::optional<WaitFailure> WatchedGroup::find_failure() {
  try {
    look_for_failure(group_);
    await_launch();
    const auto cause = describe(backend_->getError(), group_.timeout);
    if (!cause.empty()) {
      // If another rank has failed, its reason may arrive soon.
      is_stopped_within(kReasonTime);
      look_for_failure(group_);
      return WaitFailure{cause};
    }
  } catch (const WaitFailure& failure) {
    return failure;
  } catch (const std::exception& error) {
    return WaitFailure{c10::str(" because ", error_text(error))};
  }
  if (is_store_gone()) {
    return WaitFailure{
        " because the process that serves the store, rank 0 or the launcher, "
        "has ended",
        WaitFailure::Kind::kKnown};
  }
  return std::nullopt;
}

bool WatchedGroup::is_launching() const {
  return !std::unique_lock<std::recursive_mutex>(
      group_.launching, std::try_to_lock);
}

/// NCCL connects ranks in the first launch that needs it, and waits there for
/// missing ranks: no collective is in progress yet that could time out.
void WatchedGroup::await_launch() {
  const auto launch = group_.launched.load();
  if (launch != seen_launch_ || !is_launching()) {
    return;
  }
  wait_with_timeout(group_, [&](milliseconds slice) {
    return poll_for(slice, kLaunchInterval, [&] {
      return is_stopped_within(milliseconds(0)) || !is_launching() ||
          group_.launched != launch || is_store_gone() ||
          backend_->getError() != c10d::ErrorType::SUCCESS;
    });
  });
}

bool WatchedGroup::is_store_gone() {
  if (!group_.failure_store || !group_.failure_store->has_lost_rank_0()) {
    return false;
  }
  const auto now = Clock::now();
  store_lost_ = store_lost_.value_or(now);
  return now - *store_lost_ > kGrace;
}

void WatchedGroup::end(WaitFailure failure) {
  aborted_ = true;
  try {
    // Before the abort, which clears the record.
    const auto rank =
        group_.failure_store ? group_.failure_store->root_rank() : group_.rank;
    const auto path = write_flight_record(rank);
    if (!path.empty() && failure.kind != WaitFailure::Kind::kCommon) {
      failure.cause +=
          c10::str("; the flight record of rank ", rank, " is in ", path);
    }
    fail(group_, "a collective", failure);
  } catch (const std::exception&) { // the group's next use throws it
  }
  // A launching thread soon detects the broken group, unless it is stuck in
  // NCCL. An abort waits for the CUDA graphs that use the group.
  const bool locked = locks_within(kLaunchTime, group_.launching);
  run_detached([backend = backend_] { abort(*backend); }).wait_for(kAbortTime);
  if (locked) {
    group_.launching.unlock();
  }
}

WatchdogThread::~WatchdogThread() {
  stop_.set_value();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void WatchdogThread::add(std::shared_ptr<WatchedGroup> group) {
  const std::lock_guard<std::mutex> lock(mutex_);
  groups_.push_back(std::move(group));
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { run(); });
  }
}

void WatchdogThread::remove(const std::shared_ptr<WatchedGroup>& group) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    groups_.erase(std::find(groups_.begin(), groups_.end(), group));
  }
  group->stop();
}

bool WatchdogThread::await_valid_results(const std::string& scope) {
  std::unique_lock<std::mutex> lock(mutex_); // no group ends meanwhile
  if (groups_.empty()) {
    return true;
  }
  const auto type = groups_.front()->device_type();
  lock.unlock();
  wait_for_devices(type);
  lock.lock();
  return std::none_of(groups_.begin(), groups_.end(), [&](const auto& group) {
    return group->belongs_to(scope) && group->is_aborted();
  });
}

std::vector<std::shared_ptr<WatchedGroup>> WatchdogThread::groups() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return groups_;
}

void WatchdogThread::run() {
  c10::setThreadName("ddp_watchdog");
  const auto stopped = stop_.get_future();
  auto interval = kInterval;
  while (stopped.wait_for(interval) != std::future_status::ready) {
    interval = kInterval;
    for (const auto& group : groups()) {
      interval = std::max(interval, group->interval());
      group->look();
    }
  }
}

Watchdog::Watchdog(
    ProcessGroupImpl& group,
    c10::intrusive_ptr<c10d::Backend> backend)
    : thread_(group.watchdog_thread),
      group_(std::make_shared<WatchedGroup>(group, std::move(backend))) {
  thread_->add(group_);
}

Watchdog::~Watchdog() {
  thread_->remove(group_);
}

void check_gpu_results(const ProcessGroup& group) {
  auto& impl = ProcessGroupImpl::of(group);
  check_usable(impl, "a checkpoint");
  if (!impl.watchdog_thread->await_valid_results(impl.scope)) {
    fail(
        impl,
        "a collective",
        WaitFailure{
            " because a collective on the GPU was aborted, so the values on "
            "the GPU are invalid"});
  }
}

} // namespace ddp::detail
