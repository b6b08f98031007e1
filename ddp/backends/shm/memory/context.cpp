#include <ddp/backends/shm/memory/context.h>

#include <common/text.h>
#include <ddp/backends/common/arguments.h>
#include <ddp/backends/common/backend_work.h>
#include <ddp/internal/check.h>

#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <ctime>
#include <sstream>

namespace ddp::backends::shm {
namespace {

enum Failed : uint32_t { kNo, kWriting, kYes };

/// Sleeps until `raise` is called, for at most `time`; returns immediately if
/// the value is no longer `seen`.
void sleep_on(Counter& counter, uint32_t seen, std::chrono::nanoseconds time) {
  using std::chrono::seconds;
  const auto whole = std::chrono::duration_cast<seconds>(time);
  timespec limit{};
  limit.tv_sec = whole.count();
  limit.tv_nsec = (time - whole).count();
  // `raise` uses the opposite order, so `sleep_on` or `raise` sees the other's
  // write.
  counter.sleepers.fetch_add(1);
  if (counter.value.load() == seen) {
    syscall(SYS_futex, &counter.value, FUTEX_WAIT, seen, &limit, nullptr, 0);
  }
  counter.sleepers.fetch_sub(1);
}

/// Increments the counter, and wakes its waiters.
void raise(Counter& counter) {
  counter.value.fetch_add(1);
  if (counter.sleepers.load() > 0) {
    syscall(
        SYS_futex, &counter.value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Whether both headers describe the same collective.
bool fit(const CallHeader& a, const CallHeader& b) {
  return a.type == b.type && a.dtype == b.dtype && a.reduction == b.reduction &&
      a.root == b.root && a.count == b.count;
}

std::string describe(const CallHeader& header, const Context& context) {
  std::ostringstream text;
  text << c10d::opTypeToString(header.type);
  if (header.count >= 0) {
    text << " of " << header.count << " elements";
  }
  text << " of "
       << static_cast<c10::ScalarType>(static_cast<int>(header.dtype));
  if (header.root >= 0) {
    text << " with root " << context.name(header.root);
  }
  if (header.reduction > 0) {
    text << " by "
         << reduction_name(
                static_cast<c10d::ReduceOp::RedOpType>(header.reduction));
  }
  return text.str();
}

} // namespace

Context::Context(int rank, std::vector<Peer> peers, RankNames names)
    : process_(getpid()),
      rank_(rank),
      peers_(std::move(peers)),
      names_(std::move(names)) {}

CallHeader& Context::publish(c10d::OpType type) {
  auto& header = memory(rank_).control().headers[step_ % 2];
  header.type = type;
  header.dtype = 0;
  header.reduction = 0;
  header.root = -1;
  header.count = -1;
  header.offset = -1;
  header.same_for_all = false;
  return header;
}

const CallHeader& Context::published(int rank) const {
  return memory(rank).control().headers[(step_ - 1) % 2];
}

void Context::compare() const {
  for (int rank = 0; rank < size(); ++rank) {
    DDP_CHECK_WITH(
        DistBackendError,
        fit(published(rank), published(rank_)),
        "rank {} called {}, but this rank called {}",
        name(rank),
        describe(published(rank), *this),
        describe(published(rank_), *this));
  }
}

void Context::finish_step() {
  ++step_;
  raise(memory(rank_).control().steps);
}

bool Context::has_finished(int rank) const {
  // The shared counter wraps around after 2^32 steps.
  const auto& steps = memory(rank).control().steps;
  const auto ahead = steps.value.load(std::memory_order_acquire) -
      static_cast<uint32_t>(step_);
  return static_cast<int32_t>(ahead) >= 0;
}

bool Context::all_finished(
    Clock::time_point until,
    std::chrono::nanoseconds spin) {
  for (int rank = 0; rank < size(); ++rank) {
    if (!has_finished(rank) && !await(rank, until, spin)) {
      return false;
    }
  }
  return true;
}

bool Context::await(
    int rank,
    Clock::time_point until,
    std::chrono::nanoseconds spin) const {
  constexpr int kLooksPerTime = 50;
  auto now = Clock::now();
  const auto end = std::min(until, now + spin);
  while (now < end) {
    for (int look = 0; look < kLooksPerTime; ++look) {
      if (has_finished(rank)) {
        return true;
      }
      relax();
    }
    now = Clock::now();
  }
  auto& steps = memory(rank).control().steps;
  for (;;) {
    const auto seen = steps.value.load();
    if (has_finished(rank)) {
      return true;
    }
    check_failures(rank);
    check_alive();
    now = Clock::now();
    if (now >= until) {
      return has_finished(rank);
    }
    sleep_on(steps, seen, std::min<Clock::duration>(kLook, until - now));
  }
}

void Context::check_alive() const {
  for (int rank = 0; rank < size(); ++rank) {
    if (has_finished(rank) || !has_ended(rank)) {
      continue;
    }
    check_failures(rank); // again, after the rank's end
    DDP_CHECK_WITH(DistBackendError, has_finished(rank), describe_end(rank));
  }
}

std::string Context::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    if (!has_finished(rank)) {
      ranks.push_back(name(rank));
    }
  }
  return name_ranks(ranks);
}

void Context::check_failures(int awaited) const {
  for (int rank = 0; rank < size(); ++rank) {
    const auto& control = memory(rank).control();
    if (control.failed.load() == kYes && !has_finished(awaited)) {
      const auto length = strnlen(control.failure, sizeof(control.failure));
      DDP_THROW(
          DistBackendError,
          "rank {} failed: {}",
          name(rank),
          std::string(control.failure, length));
    }
  }
}

bool Context::has_ended(int rank) const {
  pollfd look{peers_[rank].process.get(), POLLIN, 0};
  return memory(rank).control().left.load() != 0 || poll(&look, 1, 0) > 0;
}

std::string Context::describe_end(int rank) const {
  return detail::format(
      "rank {} (process {}{}",
      name(rank),
      peers_[rank].pid,
      memory(rank).control().left.load() ? kHasLeft : kHasEnded);
}

bool Context::is_own_process() const {
  return getpid() == process_;
}

void Context::leave() {
  if (is_own_process()) {
    memory(rank_).control().left = 1;
  }
}

void Context::abort(const std::string& reason) {
  auto& control = memory(rank_).control();
  uint32_t expected = kNo;
  if (is_own_process() &&
      control.failed.compare_exchange_strong(expected, kWriting)) {
    const auto length = std::min(reason.size(), sizeof(control.failure) - 1);
    std::memcpy(control.failure, reason.data(), length);
    control.failed = kYes;
  }
}

} // namespace ddp::backends::shm
