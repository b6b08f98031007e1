#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ddp::detail {
class SignalSafeBuffer;
}

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

/// A collective has failed because of another rank: so will what follows, until
/// the next group is formed.
void failed_by_another() noexcept;

/// A reduction of gradients is complete, the Reducer's `number`th: "after step
/// 12".
void stepped(int64_t number) noexcept;

/// The reduction of a bucket begins: "bucket 3 of 5, step 12", and `owner`.
void began_bucket(
    size_t place,
    size_t count,
    int64_t step,
    std::string_view owner = {}) noexcept;

/// Something else has gone on.
void beat() noexcept;

/// A call of the program's while it lives: "barrier", and then "after barrier".
/// One within another shows both, the first by what the program called:
/// "save_checkpoint("net.pt"): broadcast".
class Activity {
 public:
  /// What it is about, such as a file's name, must live as long.
  explicit Activity(const char* name, std::string_view object = {}) noexcept;
  /// A collective of `count` elements: "all_reduce of 1 Double", or, where it
  /// has a root, "broadcast of 1 Double from rank 2".
  Activity(
      const char* name,
      int64_t count,
      const char* dtype,
      int64_t root = -1) noexcept;
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;
  ~Activity();

  /// Writes the outermost one around it, if any.
  void describe_caller(SignalSafeBuffer& text) const noexcept;

 private:
  const Activity& first() const noexcept;
  void write() const noexcept;
  void describe(SignalSafeBuffer& text) const noexcept;

  const char* name_;
  std::string_view object_;
  int64_t count_ = 0;
  const char* dtype_ = nullptr;
  int64_t root_ = -1;
  const Activity* outer_ = nullptr;
};

/// What was said last. Signal handlers may call them.
int64_t last_step() noexcept;
/// With a NUL at its end; `size` must be above 0.
void copy_activity(char* text, size_t size) noexcept;

/// What the program called on this thread, if that has called what is under
/// way: "save_checkpoint("net.pt")"; otherwise empty. As `copy_activity`.
void copy_caller(char* text, size_t size) noexcept;

} // namespace ddp::detail::heartbeat
