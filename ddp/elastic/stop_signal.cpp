#include <ddp/stop_signal.h>

#include <ddp/elastic/agreed_flag.h>
#include <ddp/elastic/signal_handlers.h>
#include <ddp/failure/heartbeat.h>

#include <chrono>
#include <exception>

namespace ddp {
struct DDP_LOCAL StopSignal::State {
  State(const ProcessGroup& group, const std::vector<int>& signals)
      : handlers(signals), flag(group, "StopSignal::requested") {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (std::uncaught_exceptions() == exceptions_at_construction) {
      flag.finish();
    }
  }

  const int exceptions_at_construction = std::uncaught_exceptions();
  detail::SignalHandlers handlers;
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
  state.stopped =
      state.stopped || state.flag.exchange(state.handlers.received());
  return state.stopped;
}

} // namespace ddp
