#include <ddp/elastic.h>

#include <ddp/elastic/agreed_flag.h>
#include <ddp/failure/elastic_pause.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>

namespace ddp {
namespace {

// If a batch system and a launcher both signal a rank, they do so in this time.
constexpr int64_t kSameRequestMs = 2000;

// A handler may use only global, lock-free data.
struct Slot {
  struct sigaction before {};
  /// The time of the first signal; 0: none yet.
  std::atomic<int64_t> first_ms{0};
};
std::array<Slot, NSIG> slots;
std::atomic<bool> taken{false};
std::atomic<bool> came{false}; // one of the signals
/// Whether the handlers remained, for the next object.
std::atomic<bool> handlers_kept{false};
static_assert(std::atomic<int64_t>::is_always_lock_free);
static_assert(std::atomic<bool>::is_always_lock_free);

int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000 + 1;
}

void on_stop_signal(int number) {
  const int error = errno;
  auto& slot = slots[static_cast<size_t>(number)];
  const auto now = now_ms();
  int64_t first = 0;
  if (slot.first_ms.compare_exchange_strong(first, now)) {
    came = true;
  } else if (now - first > kSameRequestMs) {
    sigaction(number, &slot.before, nullptr);
    raise(number); // delivered after this handler returns
  }
  errno = error;
}

/// Handles signals while this object exists, and records that one has arrived.
/// Handlers are per process, so a process can have only one of these objects.
class SignalHandlers {
 public:
  /// Throws `c10::Error` if the process already has one, and `c10::ValueError`
  /// if a number is not a signal that can be caught.
  explicit SignalHandlers(const std::vector<int>& signals);
  SignalHandlers(const SignalHandlers&) = delete;
  SignalHandlers& operator=(const SignalHandlers&) = delete;
  /// Restores the previous handlers, unless others have been installed since.
  ~SignalHandlers();

  /// Lets the handlers remain, except for SIGTERM, with which ddprun ends ranks
  /// that wait for nodes. A signal then counts for the next object.
  void keep();

 private:
  void restore();

  std::vector<int> signals_;
};

SignalHandlers::SignalHandlers(const std::vector<int>& signals) {
  DDP_CHECK(
      !taken.exchange(true),
      "StopSignal: this process already has a StopSignal: destroy that one "
      "first");
  if (!handlers_kept.exchange(false)) {
    came = false;
  }
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int number : signals) {
    const bool known = number > 0 && number < NSIG;
    if (known) {
      slots[static_cast<size_t>(number)].first_ms = 0;
    }
    struct sigaction before {};
    const bool readable = known && sigaction(number, nullptr, &before) == 0;
    if (readable && before.sa_handler != on_stop_signal) {
      slots[static_cast<size_t>(number)].before = before;
    }
    if (!readable || sigaction(number, &action, nullptr) != 0) {
      restore();
      DDP_THROW(
          ValueError,
          "StopSignal: {} is not a signal that can be caught",
          number);
    }
    signals_.push_back(number);
  }
}

SignalHandlers::~SignalHandlers() {
  restore();
}

void SignalHandlers::keep() {
  signals_.erase(
      std::remove_if(
          signals_.begin(),
          signals_.end(),
          [](int number) { return number != SIGTERM; }),
      signals_.end());
  handlers_kept = true;
}

void SignalHandlers::restore() {
  for (const int number : signals_) {
    struct sigaction now {};
    if (sigaction(number, nullptr, &now) == 0 &&
        now.sa_handler == on_stop_signal) {
      sigaction(number, &slots[static_cast<size_t>(number)].before, nullptr);
    }
  }
  taken = false;
}

} // namespace

struct DDP_LOCAL StopSignal::State {
  State(const ProcessGroup& group, const std::vector<int>& signals)
      : handlers(signals), flag(group, "StopSignal::requested") {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (std::uncaught_exceptions() == exceptions_at_construction) {
      flag.finish();
    } else if (detail::elastic_pause::is_possible()) {
      handlers.keep();
    }
  }

  const int exceptions_at_construction = std::uncaught_exceptions();
  SignalHandlers handlers;
  detail::AgreedFlag flag;
  bool stopped = false;
};

StopSignal::StopSignal(
    const ProcessGroup& group,
    const std::vector<int>& signals)
    : state_(std::make_unique<State>(group, signals)) {}

StopSignal::~StopSignal() = default;

bool StopSignal::requested() {
  const detail::heartbeat::Activity activity("StopSignal::requested");
  auto& state = *state_;
  state.stopped = state.stopped || state.flag.exchange(came);
  return state.stopped;
}

} // namespace ddp
