#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ddp::detail {
class SignalSafeBuffer;
}

/// The progress of this rank, for crash reports and for ddprun, which uses it
/// to detect hanging ranks.
///
/// The progress is written to memory that ddprun reads or, without ddprun, to
/// memory of this process. No function allocates or waits, and all are
/// thread-safe.
namespace ddp::detail::heartbeat {

/// Attaches to ddprun's memory if DDP_HEARTBEAT_FD names its descriptor, which
/// child processes do not inherit. Any other descriptor is ignored.
void attach() noexcept;

/// Reports that a group of this rank has formed; earlier failures are over.
void joined() noexcept;

/// Reports that a collective in a group of `size` ranks has failed because of
/// another rank. Later collectives will fail for the same reason until the next
/// group has formed; the first group counts.
void failed_by_another(int64_t size) noexcept;

/// Reports that an error of its own ends this process: `failed_by_another` then
/// has no effect.
void failed_by_itself() noexcept;

/// Reports that the Reducer's reduction `number` is complete: "after step 12".
void stepped(int64_t number) noexcept;

/// Reports that the reduction of a bucket begins: "bucket 3 of 5, step 12",
/// followed by `owner`.
void began_bucket(
    size_t place,
    size_t count,
    int64_t step,
    std::string_view owner = {}) noexcept;

/// Reports other progress.
void beat() noexcept;

/// Reports a call of the program: "barrier" while the Activity exists, and then
/// "after barrier". For a nested call, the report also names the program's
/// call: "save_checkpoint("net.pt"): broadcast".
class Activity {
 public:
  /// `object`, such as a file's name, must live as long as this object.
  explicit Activity(const char* name, std::string_view object = {}) noexcept;
  /// A collective of `count` elements: "all_reduce of 1 Double", or, with a
  /// root, "broadcast of 1 Double from rank 2".
  Activity(
      const char* name,
      int64_t count,
      const char* dtype,
      int64_t root = -1) noexcept;
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;
  ~Activity();

  /// Writes the outermost enclosing call, if any.
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

/// The last reported values. These functions are async-signal-safe.
bool is_failed_by_another() noexcept;
int64_t last_step() noexcept;
/// Copies the activity, null-terminated; `size` must be positive.
void copy_activity(char* text, size_t size) noexcept;

/// Copies the activity of this thread or, if it is in no call, of the process.
/// Null-terminated, like `copy_activity`.
void copy_own_activity(char* text, size_t size) noexcept;

/// Copies the program's call on this thread if the current activity is nested
/// in that call: "save_checkpoint("net.pt")"; otherwise an empty string.
/// Null-terminated, like `copy_activity`.
void copy_caller(char* text, size_t size) noexcept;

} // namespace ddp::detail::heartbeat
