#pragma once

#include <ddp/internal/export.h>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace ddp::detail {

/// A batch to load, in parts that several threads may load concurrently.
class BatchJob {
 public:
  BatchJob(size_t samples, size_t part) : samples_(samples), part_(part) {}
  virtual ~BatchJob() = default;
  BatchJob(const BatchJob&) = delete;
  BatchJob& operator=(const BatchJob&) = delete;

  size_t samples() const {
    return samples_;
  }

 private:
  friend class BatchWorkers;

  /// Loads samples `begin` to `end` on thread `worker`.
  virtual void load(size_t worker, size_t begin, size_t end) = 0;

  const size_t samples_;
  const size_t part_;
  /// Guarded by the mutex of BatchWorkers, like the next two members.
  size_t given_out_ = 0;
  size_t loaded_ = 0;
  std::exception_ptr error_;
};

/// Threads that load batches. All threads work on the oldest batch with
/// remaining parts, so batches become ready in order. Without threads, `take`
/// loads the batch.
class DDP_API BatchWorkers {
 public:
  using Timeout = std::optional<std::chrono::milliseconds>;

  /// `init` may be empty; the constructor throws the exceptions of `init`.
  BatchWorkers(size_t workers, const std::function<void(size_t)>& init);
  ~BatchWorkers();
  BatchWorkers(const BatchWorkers&) = delete;
  BatchWorkers& operator=(const BatchWorkers&) = delete;

  void add(std::shared_ptr<BatchJob> job);

  /// The number of batches that were added and not yet taken.
  size_t size() const;

  /// Whether the oldest batch is loaded, without an error.
  bool is_ready() const;

  /// Waits for the oldest batch, which must exist, and takes it. Throws the
  /// batch's error, and `c10::Error` after `timeout`.
  std::shared_ptr<BatchJob> take(Timeout timeout);

  /// Drops all batches; threads may still load parts of them.
  void clear();

 private:
  struct Part {
    std::shared_ptr<BatchJob> job;
    size_t begin;
    size_t end;
  };

  void start(size_t workers, const std::function<void(size_t)>& init);
  void stop();
  void work(size_t worker, const std::function<void(size_t)>& init);
  std::optional<Part> next_part();
  void load(const Part& part, size_t worker);

  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable progress_;
  std::deque<std::shared_ptr<BatchJob>> jobs_;
  size_t started_ = 0;
  std::exception_ptr init_error_;
  bool stops_ = false;
  std::vector<std::thread> threads_;
};

} // namespace ddp::detail
