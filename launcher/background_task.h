#pragma once

#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include <sys/eventfd.h>

#include <common/file_descriptor.h>

namespace ddp {

/// What takes its time because it waits for the network: a thread does it. One
/// whose result is not wanted any more is left to itself.
template <typename Result>
class BackgroundTask {
 public:
  /// Starts it. Throws std::system_error.
  explicit BackgroundTask(std::function<Result()> task)
      : state_(std::make_shared<State>()) {
    std::thread([task = std::move(task), state = state_] {
      try {
        state->result.set_value(task());
      } catch (...) {
        state->result.set_exception(std::current_exception());
      }
      eventfd_write(state->done.get(), 1);
    }).detach();
  }

  /// Becomes readable when take() has something.
  int fd() const {
    return state_->done.get();
  }
  bool is_done() const {
    eventfd_t count = 0;
    return eventfd_read(fd(), &count) == 0;
  }
  /// Call it once, when it is done. Throws what the task threw.
  Result take() {
    return state_->result.get_future().get();
  }

 private:
  struct State {
    std::promise<Result> result;
    FileDescriptor done{check_call(
        eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
        "cannot wait for a thread")};
  };

  std::shared_ptr<State> state_;
};

} // namespace ddp
