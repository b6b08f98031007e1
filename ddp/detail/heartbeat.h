#pragma once

#include <cstddef>
#include <cstdint>

/// What this rank says of its progress: to ddprun, which finds hanging ranks by
/// it, and in the report of a crash.
///
/// It is written into memory that ddprun reads, or, where no ddprun has handed
/// some over, into memory of this process. No function allocates or waits, and
/// all may be called by several threads at once.
namespace ddp::detail::heartbeat {

/// Takes the memory that ddprun handed over, if it did: DDP_HEARTBEAT_FD, which
/// child processes do not get. What is no such memory is left alone.
void attach() noexcept;

/// This rank's first group is formed.
void joined() noexcept;

/// A reduction of gradients is complete, the Reducer's `number`th: "after step
/// 12".
void stepped(int64_t number) noexcept;

/// `activity` begins, such as "barrier", and ends: "after barrier".
void began(const char* activity) noexcept;
void ended(const char* activity) noexcept;

/// The reduction of a bucket begins: "bucket 3 of 5, step 12".
void began_bucket(size_t place, size_t count, int64_t step) noexcept;

/// Something else has gone on.
void beat() noexcept;

/// An activity while it lives.
class Activity {
 public:
  explicit Activity(const char* name) noexcept : name_(name) {
    began(name);
  }
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;
  ~Activity() {
    ended(name_);
  }

 private:
  const char* name_;
};

/// What was said last. Signal handlers may call them.
int64_t last_step() noexcept;
/// With a NUL at its end; `size` must be above 0.
void copy_activity(char* text, size_t size) noexcept;

} // namespace ddp::detail::heartbeat
