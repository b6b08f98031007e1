#include <ddp/support/detached_task.h>

#include <c10/util/thread_name.h>

#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <new>

namespace ddp::detail {
namespace {

/// A thread that has completed its task and waits for another.
struct IdleThread {
  std::condition_variable woken;
  std::function<void()> task;
  IdleThread* next = nullptr;
};

struct IdleThreads {
  std::mutex mutex;
  IdleThread* first = nullptr;
};

/// The threads exist until the process ends. A child of fork has none.
IdleThreads& idle_threads() {
  static auto& threads = []() -> IdleThreads& {
    auto& made = *new IdleThreads;
    pthread_atfork(nullptr, nullptr, [] { new (&idle_threads()) IdleThreads; });
    return made;
  }();
  return threads;
}

void run_tasks(std::function<void()> task) {
  c10::setThreadName("ddp_detached"); // not the starting thread's name
  auto& idle = idle_threads();
  IdleThread own;
  while (true) {
    task();
    task = nullptr;
    std::unique_lock<std::mutex> lock(idle.mutex);
    own.next = std::exchange(idle.first, &own);
    own.woken.wait(lock, [&own] { return own.task != nullptr; });
    task = std::exchange(own.task, nullptr);
  }
}

} // namespace

void start_detached(std::function<void()> task) {
  auto& idle = idle_threads();
  const std::lock_guard<std::mutex> lock(idle.mutex);
  if (!idle.first) {
    std::thread(run_tasks, std::move(task)).detach();
    return;
  }
  auto& thread = *std::exchange(idle.first, idle.first->next);
  thread.task = std::move(task);
  thread.woken.notify_one();
}

} // namespace ddp::detail
