#include <ddp/spawn/spawned_workers.h>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace ddp::detail {
namespace {

// A victim may end before what made it one: it gets so long to end by itself.
constexpr auto kTerminationTime = std::chrono::milliseconds(500);
// Where no descriptor tells of a process's end.
constexpr int kLookMs = 20;
constexpr std::chrono::steady_clock::duration kNow{0};
constexpr std::chrono::steady_clock::duration kLongest = std::chrono::hours(1);

bool ends_program(int signal) {
  return signal != SIGUSR1 && signal != SIGUSR2;
}

} // namespace

SpawnedWorkers::~SpawnedWorkers() {
  send(SIGKILL);
  for (const auto& worker : workers_) {
    if (!worker.ended) {
      waitpid(worker.pid, nullptr, 0);
    }
  }
}

void SpawnedWorkers::add(int64_t rank, pid_t pid, FileDescriptor report) {
  auto& worker = workers_.emplace_back();
  worker.rank = rank;
  worker.pid = pid;
  worker.process = open_process(pid);
  worker.report = std::move(report);
}

int SpawnedWorkers::wait() {
  while (any_runs()) {
    sleep();
    take_signals();
    reap();
    act();
  }
  take_signals();
  return signal_;
}

const SpawnedWorker* SpawnedWorkers::root_cause() const {
  const auto key = [](const SpawnedWorker& worker) {
    return std::make_pair(worker.is_consequence(), worker.failure_ns());
  };
  const SpawnedWorker* root = nullptr;
  for (const auto& worker : workers_) {
    if (worker.failed() && (!root || key(worker) < key(*root))) {
      root = &worker;
    }
  }
  return root;
}

bool SpawnedWorkers::any_runs() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const auto& worker) {
    return !worker.ended;
  });
}

void SpawnedWorkers::send(int signal) {
  for (const auto& worker : workers_) {
    if (!worker.ended) {
      kill(worker.pid, signal);
    }
  }
}

/// Until something may have happened, or it is time to do something.
void SpawnedWorkers::sleep() const {
  std::vector<pollfd> ready{{signals_.descriptor(), POLLIN, 0}};
  int patience = -1;
  for (const auto& worker : workers_) {
    if (!worker.ended && worker.process) {
      ready.push_back({worker.process.get(), POLLIN, 0});
    } else if (!worker.ended) {
      patience = kLookMs;
    }
  }
  if (const auto& next = kill_at_ ? kill_at_ : stop_at_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        std::clamp(*next - Clock::now(), kNow, kLongest));
    const auto milliseconds = static_cast<int>(left.count());
    patience = patience < 0 ? milliseconds : std::min(patience, milliseconds);
  }
  poll(ready.data(), ready.size(), patience);
}

void SpawnedWorkers::take_signals() {
  while (const auto signal = signals_.next()) {
    if (!signal->from_terminal) {
      send(signal->number);
    }
    if (ends_program(signal->number)) {
      const bool again = signal_ != 0;
      kill_at_ = Clock::now() + (again ? kNow : grace_);
      signal_ = signal->number;
    }
  }
}

void SpawnedWorkers::reap() {
  for (auto& worker : workers_) {
    if (worker.ended) {
      continue;
    }
    worker.reap();
    if (worker.failed()) {
      const auto now = Clock::now();
      const auto time = worker.is_consequence() ? now + kTerminationTime : now;
      stop_at_ = std::min(stop_at_.value_or(time), time);
    }
  }
}

void SpawnedWorkers::act() {
  const auto now = Clock::now();
  if (stop_at_ && now >= *stop_at_ && !kill_at_) {
    for (auto& worker : workers_) {
      worker.stopped = worker.stopped || !worker.ended;
    }
    send(SIGTERM);
    send(SIGCONT); // one that is stopped would not notice
    kill_at_ = now + grace_;
  }
  if (kill_at_ && now >= *kill_at_) {
    send(SIGKILL);
    kill_at_ = now + std::chrono::seconds(1); // until the kernel has done so
  }
}

} // namespace ddp::detail
