#pragma once

#include <ddp/backends/common/backend_work.h>
#include <ddp/backends/shm/engine.h>
#include <ddp/backends/shm/memory/mailbox.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <string>

namespace ddp::backends::shm {

/// A message that a rank waits for. The thread that waits copies it.
class ReceiptWork final : public BackendWork {
 public:
  ReceiptWork(
      std::shared_ptr<Engine> engine,
      std::shared_ptr<Mailbox> mailbox,
      const char* name,
      const at::Tensor& tensor,
      int source,
      int tag,
      std::chrono::milliseconds timeout);
  ~ReceiptWork() override;

  bool isCompleted() override;
  void synchronize() override {}
  int sourceRank() const override;
  /// Completed by a thread of its own.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  bool ends_until(Clock::time_point until) override;
  void conclude(const std::string& error = "");
  void fail(const std::string& reason);

  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<Mailbox> mailbox_;
  Receipt receipt_;
  const std::chrono::milliseconds timeout_;
  const Clock::time_point deadline_;
  std::mutex ending_;
  std::atomic<bool> concluded_{false};
};

} // namespace ddp::backends::shm
