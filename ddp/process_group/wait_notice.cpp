#include <ddp/process_group/wait_notice.h>

#include <ddp/support/own_thread.h>

#include <c10/util/Exception.h>

#include <condition_variable>
#include <mutex>

namespace ddp::detail {

struct WaitNotice::State {
  std::mutex mutex;
  std::condition_variable ended;
  bool is_over = false;
};

WaitNotice::WaitNotice(
    std::chrono::milliseconds after,
    const std::string& who,
    const std::string& call)
    : state_(std::make_shared<State>()) {
  const auto wait = [state = state_, after, who, call] {
    std::unique_lock<std::mutex> lock(state->mutex);
    if (!state->ended.wait_for(lock, after, [&] { return state->is_over; })) {
      warn_of_wait(after, who, call);
    }
  };
  try {
    start_on_own_thread(wait);
  } catch (const std::exception&) { // no thread is to be had: no notice
  }
}

WaitNotice::~WaitNotice() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->is_over = true;
  state_->ended.notify_all();
}

void warn_of_wait(
    std::chrono::milliseconds time,
    const std::string& who,
    const std::string& call) {
  TORCH_WARN(
      "ddp: ",
      who,
      " has waited for ",
      static_cast<double>(time.count()) / 1000.0,
      " s in ",
      call);
}

} // namespace ddp::detail
