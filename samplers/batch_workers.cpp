#include <ddp/samplers/internal/batch_workers.h>

#include <ddp/internal/check.h>
#include <ddp/support/signals_blocked.h>

#include <ATen/Parallel.h>

#include <algorithm>

namespace ddp::detail {
namespace {

/// Signals to the process, which the program's threads must get, but not the
/// signals that faults of a thread cause.
sigset_t sent_signals() {
  sigset_t sent;
  sigfillset(&sent);
  for (const int own :
       {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF}) {
    sigdelset(&sent, own);
  }
  return sent;
}

} // namespace

BatchWorkers::BatchWorkers(
    size_t workers,
    const std::function<void(size_t)>& init) {
  // A worker's number of threads also becomes the default for later threads.
  const auto threads = at::get_num_threads();
  try {
    start(workers, init);
  } catch (...) {
    stop();
    at::set_num_threads(threads);
    throw;
  }
  if (workers > 0) {
    at::set_num_threads(threads);
  }
}

BatchWorkers::~BatchWorkers() {
  stop();
}

void BatchWorkers::start(
    size_t workers,
    const std::function<void(size_t)>& init) {
  const SignalsBlocked blocked(sent_signals());
  for (size_t i = 0; i < workers; ++i) {
    threads_.emplace_back([this, i, init] { work(i, init); });
  }
  std::unique_lock<std::mutex> lock(mutex_);
  progress_.wait(lock, [&] { return started_ == workers; });
  if (init_error_) {
    std::rethrow_exception(init_error_);
  }
}

void BatchWorkers::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stops_ = true;
    jobs_.clear();
  }
  work_.notify_all();
  for (auto& thread : threads_) {
    thread.join();
  }
}

void BatchWorkers::add(std::shared_ptr<BatchJob> job) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  work_.notify_all();
}

size_t BatchWorkers::size() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return jobs_.size();
}

bool BatchWorkers::is_ready() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !jobs_.empty() && jobs_.front()->loaded_ == jobs_.front()->samples_ &&
      !jobs_.front()->error_;
}

std::shared_ptr<BatchJob> BatchWorkers::take(Timeout timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  auto job = jobs_.front();
  while (threads_.empty() && job->given_out_ < job->samples_) {
    const auto part = next_part();
    lock.unlock();
    load(*part, 0);
    lock.lock();
  }
  const auto loaded = [&] { return job->loaded_ == job->samples_; };
  if (!timeout) {
    progress_.wait(lock, loaded);
  } else if (!progress_.wait_for(lock, *timeout, loaded)) {
    const auto text = detail::format(
        "data loader: the next batch is not ready after {} ms: {} of its {} "
        "samples are loaded",
        timeout->count(),
        job->loaded_,
        job->samples_);
    // Nobody sees the exception if it destroys a loader that hangs.
    TORCH_WARN("ddp: ", text);
    DDP_THROW(Error, text);
  }
  jobs_.pop_front();
  if (job->error_) {
    std::rethrow_exception(job->error_);
  }
  return job;
}

void BatchWorkers::clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  jobs_.clear();
}

/// Call this with the lock held.
std::optional<BatchWorkers::Part> BatchWorkers::next_part() {
  for (const auto& job : jobs_) {
    if (job->given_out_ < job->samples_) {
      const auto begin = job->given_out_;
      job->given_out_ = std::min(begin + job->part_, job->samples_);
      return Part{job, begin, job->given_out_};
    }
  }
  return std::nullopt;
}

void BatchWorkers::load(const Part& part, size_t worker) {
  std::exception_ptr error;
  try {
    part.job->load(worker, part.begin, part.end);
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& job = *part.job;
  if (!job.error_) {
    job.error_ = error;
  }
  job.loaded_ += part.end - part.begin;
  if (job.loaded_ == job.samples_) {
    progress_.notify_all();
  }
}

void BatchWorkers::work(
    size_t worker,
    const std::function<void(size_t)>& init) {
  // One thread each, since the workers run in parallel. The first query in a
  // thread copies LibTorch's default to the thread, and the constructor
  // restores this default.
  at::set_num_threads(1);
  at::get_num_threads();
  std::exception_ptr error;
  try {
    if (init) {
      init(worker);
    }
  } catch (...) {
    error = std::current_exception();
  }
  std::unique_lock<std::mutex> lock(mutex_);
  init_error_ = init_error_ ? init_error_ : error;
  ++started_;
  progress_.notify_all();
  for (;;) {
    std::optional<Part> part;
    work_.wait(lock, [&] { return stops_ || (part = next_part()); });
    if (!part) {
      return;
    }
    lock.unlock();
    load(*part, worker);
    part.reset();
    lock.lock();
  }
}

} // namespace ddp::detail
