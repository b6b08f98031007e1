#include <ddp/backends/mpi/engine.h>

#include <ddp/backends/mpi/backoff.h>

#include <sys/prctl.h>

namespace ddp::backends::mpi {
namespace {

// The time for operations that still run at the end of the program or of MPI.
constexpr std::chrono::seconds kGrace{2};
// A waiting thread may spin; the engine's thread may share its core with a
// thread that computes.
constexpr std::chrono::microseconds kSpinOfWaiters{10};
constexpr std::chrono::microseconds kPatienceOfWaiters{1000};
constexpr std::chrono::microseconds kSpinOfThread{0};
constexpr std::chrono::microseconds kPatienceOfThread{50};
// Waking a thread takes longer than a small operation, and the caller may wait
// soon. The engine's thread therefore starts only after this delay.
constexpr std::chrono::microseconds kHeadStart{100};
constexpr std::chrono::microseconds kAtOnce{0};

thread_local bool deferring = false;

} // namespace

Engine& Engine::get() {
  // Never destroyed: the engine's thread and communicators may outlive main().
  static auto* engine = new Engine;
  return *engine;
}

Engine::Engine() : threading_(initialize_mpi()) {
  // MPI_Finalize deletes the attributes of MPI_COMM_SELF first.
  const auto at_deletion =
      [](MPI_Comm /*comm*/, int /*key*/, void* /*value*/, void* engine) {
        static_cast<Engine*>(engine)->finalize();
        return MPI_SUCCESS;
      };
  int key = MPI_KEYVAL_INVALID;
  check_mpi(
      MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_deletion, &key, this),
      "MPI_Comm_create_keyval");
  check_mpi(
      MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr), "MPI_Comm_set_attr");
  MPI_Comm_free_keyval(&key); // once the attribute is deleted
  if (threading_ != Threading::kCaller) {
    std::thread([this] { run(); }).detach();
  }
}

void Engine::submit(const OperationPtr& operation) {
  if (threading_ == Threading::kCaller) {
    check_thread();
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    incoming_.push_back(operation);
    ++outstanding_;
    wake(kHeadStart);
  }
  if (threading_ == Threading::kCaller) {
    poll();
    return;
  }
  // Otherwise, the holder releases the lock soon, and the thread polls again.
  if (calls_.try_lock()) {
    const std::lock_guard<std::mutex> lock(calls_, std::adopt_lock);
    start_waiting();
  }
}

bool Engine::wait(Operation& operation, Clock::time_point until) {
  if (operation.done_) {
    return true;
  }
  ++operation.waiters_;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++helpers_;
  }
  Backoff pause(kSpinOfWaiters, kPatienceOfWaiters);
  for (auto now = Clock::now(); !operation.done_ && now < until;
       now = Clock::now()) {
    if (operation.arrived_ && !operation.claimed_) {
      operation.complete();
      continue;
    }
    if (calls_.try_lock()) {
      const std::lock_guard<std::mutex> lock(calls_, std::adopt_lock);
      advance(now);
    }
    if (!operation.arrived_ || operation.claimed_) {
      pause(now);
    }
  }
  leave(operation);
  return operation.done_;
}

void Engine::leave(Operation& operation) {
  --operation.waiters_;
  if (operation.arrived_) { // left to this thread to complete
    operation.complete();
  }
  if (threading_ == Threading::kCaller) {
    complete_arrived();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (--helpers_ == 0 && outstanding_ > 0) {
    wake(kHeadStart);
  }
}

void Engine::take_over() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (outstanding_ > 0 && helpers_ == 0) {
    wake(kAtOnce);
  }
}

void Engine::poll() {
  if (threading_ != Threading::kCaller) {
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(calls_);
    advance(Clock::now());
  }
  complete_arrived();
}

void Engine::defer(const std::function<void()>& start) {
  const bool outer = deferring;
  deferring = true;
  try {
    start();
  } catch (...) {
    deferring = outer;
    throw;
  }
  deferring = outer;
}

bool Engine::may_be_pending() const {
  return threading_ != Threading::kCaller || deferring;
}

void Engine::drive(Clock::time_point until, const std::function<bool()>& done) {
  Backoff pause(kSpinOfWaiters, kPatienceOfWaiters);
  for (auto now = Clock::now(); !done() && now < until; now = Clock::now()) {
    poll();
    pause(now);
  }
}

std::unique_lock<std::mutex> Engine::exclusive() {
  return threading_ == Threading::kOneAtATime
      ? std::unique_lock<std::mutex>(calls_)
      : std::unique_lock<std::mutex>();
}

void Engine::settle() {
  drive(Clock::now() + kGrace, [this] {
    const std::lock_guard<std::mutex> lock(mutex_);
    return outstanding_ == 0 || unfinished_;
  });
}

void Engine::finalize() {
  settle();
  const std::lock_guard<std::mutex> lock(calls_);
  finalized_ = true;
  for (const auto& operation : std::exchange(started_, {})) {
    operation->fail(kFinalized);
    abandon(operation);
  }
  start_waiting(); // fails the others
}

bool Engine::stop() {
  settle();
  std::unique_lock<std::mutex> lock(mutex_);
  if (threading_ != Threading::kCaller) {
    stopping_ = true;
    wake(kAtOnce);
    rest_.wait_for(lock, kGrace, [this] { return stopped_; });
  }
  return outstanding_ == 0 && !unfinished_ &&
      (stopped_ || threading_ == Threading::kCaller);
}

void Engine::run() {
  prctl(PR_SET_NAME, "ddp_mpi");
  prctl(PR_SET_TIMERSLACK, 1000); // nanoseconds; pauses are shorter than 50 us
  Backoff pause(kSpinOfThread, kPatienceOfThread);
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    sleep(lock);
    if (stopping_) {
      break;
    }
    const bool drive = outstanding_ > 0 && helpers_ == 0;
    lock.unlock();
    complete_arrived();
    bool changed = true;
    if (drive) {
      const std::lock_guard<std::mutex> calls(calls_);
      changed = advance(Clock::now());
    }
    if (changed) {
      pause.reset();
    } else {
      pause(Clock::now());
    }
    lock.lock();
  }
  stopped_ = true;
  rest_.notify_all();
}

void Engine::sleep(std::unique_lock<std::mutex>& lock) {
  const auto needed = [this] {
    return stopping_ || !arrived_.empty() ||
        (outstanding_ > 0 && helpers_ == 0);
  };
  while (!needed()) {
    asleep_ = true;
    alarmed_ = false;
    lock.unlock();
    timer_.wait();
    lock.lock();
  }
  asleep_ = false;
}

void Engine::wake(std::chrono::microseconds delay) {
  if (asleep_ && (!alarmed_ || delay == kAtOnce)) {
    alarmed_ = true;
    timer_.set(delay);
  }
}

bool Engine::advance(Clock::time_point now) {
  const bool started = start_waiting();
  return test_started(now) || started;
}

bool Engine::start_waiting() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.insert(waiting_.end(), incoming_.begin(), incoming_.end());
    incoming_.clear();
  }
  const auto before = waiting_.size();
  // An operation that cannot start yet, or only in part, blocks later
  // operations.
  std::vector<const Channel*> held_up;
  for (auto place = waiting_.begin(); place != waiting_.end();) {
    const auto* channel = (*place)->channel_.get();
    bool blocked = channel->occupied ||
        std::find(held_up.begin(), held_up.end(), channel) != held_up.end();
    if (!blocked && leaves_queue(*place, blocked)) {
      place = waiting_.erase(place);
      continue;
    }
    held_up.push_back(channel);
    ++place;
  }
  return waiting_.size() != before;
}

bool Engine::leaves_queue(const OperationPtr& operation, bool& blocked) {
  const auto reason = operation->channel_->first_error.reason();
  if (finalized_ || !reason.empty()) {
    operation->fail(
        reason.empty() ? kFinalized
                       : "its group has already failed: " + reason);
    arrive(operation);
    return true;
  }
  if (!operation->ready()) {
    blocked = Clock::now() < operation->deadline_;
    if (!blocked) {
      operation->time_out();
      arrive(operation);
    }
    return !blocked;
  }
  if (operation->start()) {
    started_.push_back(operation);
  } else {
    abandon(operation);
  }
  return true;
}

bool Engine::test_started(Clock::time_point now) {
  const auto before = started_.size();
  for (size_t i = 0; i < started_.size();) {
    const auto operation = started_[i];
    const auto state = operation->test();
    if (state == Operation::State::kPending && now < operation->deadline_) {
      ++i;
      continue;
    }
    started_.erase(started_.begin() + static_cast<std::ptrdiff_t>(i));
    if (state == Operation::State::kDone) {
      arrive(operation);
      continue;
    }
    if (state == Operation::State::kPending) {
      operation->time_out();
    }
    abandon(operation);
  }
  return started_.size() != before;
}

void Engine::abandon(const OperationPtr& operation) {
  operation->abandoned_ = true;
  abandoned_.push_back(operation);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    unfinished_ = true;
  }
  arrive(operation);
}

void Engine::arrive(const OperationPtr& operation) {
  operation->arrived_ = true;
  const std::lock_guard<std::mutex> lock(mutex_);
  --outstanding_;
  if (operation->waiters_ == 0) { // no thread waits to complete it
    arrived_.push_back(operation);
    wake(kAtOnce);
  }
}

void Engine::complete_arrived() {
  std::vector<OperationPtr> arrived;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    arrived.swap(arrived_);
  }
  for (const auto& operation : arrived) {
    operation->complete();
  }
}

} // namespace ddp::backends::mpi
