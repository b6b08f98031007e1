#include <ddp/stop_signal.h>

#include <ddp/detail/collective_wait.h>
#include <ddp/detail/signal_handlers.h>

#include <ATen/ATen.h>

#include <chrono>
#include <exception>
#include <optional>

namespace ddp {
namespace {

constexpr const char* kRequested = "StopSignal::requested";

// The others have started it too, and so it ends, unless they never came.
constexpr std::chrono::milliseconds kLastWait{1000};

} // namespace

struct StopSignal::State {
  State(const ProcessGroup& its_group, const std::vector<int>& signals)
      : group(its_group), handlers(signals) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (pending && std::uncaught_exceptions() == exceptions_at_construction) {
      wait_at_the_end();
    }
    if (pending && !pending->work->isCompleted()) {
      impl().abandoned = true;
    }
  }

  ProcessGroup::Impl& impl() const {
    return ProcessGroup::Impl::of(group);
  }

  void wait_at_the_end() noexcept {
    try {
      pending->work->wait(kLastWait);
    } catch (const std::exception&) { // nobody asks any more
    }
  }

  /// What the ranks said in the call before.
  bool heard() {
    if (!pending) {
      return false;
    }
    const auto collective = *pending;
    pending.reset();
    detail::guarded(
        impl(), kRequested, [&] { detail::wait(impl(), collective); });
    return *flag.const_data_ptr<int>() != 0;
  }

  void tell() {
    *flag.mutable_data_ptr<int>() = handlers.received();
    detail::guarded(impl(), kRequested, [&] {
      pending = detail::start(impl(), flag, [&] {
        std::vector<at::Tensor> tensors{flag};
        c10d::AllreduceOptions options;
        options.reduceOp = c10d::ReduceOp::MAX;
        return impl().group->allreduce(tensors, options);
      });
    });
  }

  const int exceptions_at_construction = std::uncaught_exceptions();
  ProcessGroup group;
  detail::SignalHandlers handlers;
  at::Tensor flag = at::zeros({1}, at::kInt);
  std::optional<detail::Collective> pending;
  bool stopped = false;
};

StopSignal::StopSignal(
    const ProcessGroup& group,
    const std::vector<int>& signals)
    : state_(std::make_unique<State>(group, signals)) {}

StopSignal::~StopSignal() = default;

bool StopSignal::requested() {
  auto& state = *state_;
  if (state.stopped) {
    return true;
  }
  if (state.group.size() == 1) {
    state.stopped = state.handlers.received();
    return state.stopped;
  }
  state.stopped = state.heard();
  if (!state.stopped) {
    state.tell();
  }
  return state.stopped;
}

} // namespace ddp
