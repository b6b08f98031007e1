#pragma once

#include <future>
#include <memory>
#include <thread>

namespace ddp::detail {

/// Calls `function` on a thread of its own, for calls that may never return:
/// whoever stops waiting for the future leaves the thread to itself.
template <typename Function>
auto on_own_thread(Function function) {
  using Task = std::packaged_task<decltype(function())()>;
  auto task = std::make_shared<Task>(std::move(function));
  auto result = task->get_future();
  std::thread([task] { (*task)(); }).detach();
  return result;
}

} // namespace ddp::detail
