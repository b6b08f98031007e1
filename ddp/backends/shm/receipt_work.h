#pragma once

#include <ddp/backends/shm/engine.h>
#include <ddp/backends/shm/memory/mailbox.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <string>

namespace ddp::backends::shm {

/// A message that a rank waits for. The thread that waits copies it.
class ReceiptWork final : public c10d::Work {
 public:
  using Clock = Team::Clock;

  ReceiptWork(
      std::shared_ptr<Engine> engine,
      std::shared_ptr<Mailbox> mailbox,
      std::shared_ptr<Receipt> receipt,
      const char* name,
      std::chrono::milliseconds timeout);
  ~ReceiptWork() override;

  bool isCompleted() override;
  /// As `Operation::wait`.
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override {}
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  /// Completed by a thread of its own.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  /// Whether it ended, with or without an error.
  bool ends_until(Clock::time_point until);
  void conclude(std::exception_ptr error);
  void fail(const std::string& reason);
  std::string description() const;

  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<Mailbox> mailbox_;
  const std::shared_ptr<Receipt> receipt_;
  const char* const name_;
  const std::chrono::milliseconds timeout_;
  const Clock::time_point deadline_;
  std::mutex ending_;
  std::atomic<bool> concluded_{false};
};

} // namespace ddp::backends::shm
