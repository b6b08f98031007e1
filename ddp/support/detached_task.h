#pragma once

#include <ddp/internal/check.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <memory>

namespace ddp::detail {

/// Runs `task`, which must not throw, on a separate thread: an idle thread of
/// an earlier task, or a new one.
void start_detached(std::function<void()> task);

/// Calls `function` on a separate thread, for calls that may never return: a
/// caller that stops waiting for the future abandons the thread.
template <typename Function>
auto run_detached(Function function) {
  using Task = std::packaged_task<decltype(function())()>;
  auto task = std::make_shared<Task>(std::move(function));
  auto result = task->get_future();
  start_detached([task] { (*task)(); });
  return result;
}

/// Same as above, but waits for at most `timeout`, and then throws
/// `c10::DistStoreError`, since a request to a store whose process is stopped
/// never ends. `check` is called every 0.1 s of the wait, and can end the wait
/// by throwing.
template <typename Function>
auto answered_within(
    std::chrono::milliseconds timeout,
    Function function,
    const std::function<void()>& check = nullptr) {
  constexpr std::chrono::milliseconds kSlice(100);
  auto answer = run_detached(std::move(function));
  auto left = timeout;
  while (answer.wait_for(std::min(left, kSlice)) != std::future_status::ready) {
    left -= kSlice;
    DDP_CHECK_WITH(
        DistStoreError,
        left.count() > 0,
        "the store, which rank 0 or the launcher serves, has not answered for "
        "{} s: is that process stopped, or its host unreachable?",
        static_cast<double>(timeout.count()) / 1000.0);
    if (check) {
      check();
    }
  }
  return answer.get();
}

} // namespace ddp::detail
