#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <common/elastic_page.h>
#include <common/file_descriptor.h>
#include <common/scheduler/rank_environment.h>

namespace ddp {

/// The state that a rank reports in its heartbeat.
struct Heartbeat {
  bool joined = false;
  /// The size of the group in which a collective failed because of another
  /// rank; 0 if none did since the rank's last group has formed.
  uint64_t failed_by_another = 0;
  uint64_t beats = 0;
  int64_t step = 0;
  /// The current or last activity, without control characters; empty while the
  /// rank is writing it.
  std::string activity;
};

/// ddprun's view of a rank's HeartbeatPage, and of the ElasticPage after it.
/// The rank can write any bytes to the memory, but cannot shrink it.
class HeartbeatReader {
 public:
  /// Creates the memory. If the kernel or a container refuses the memory, the
  /// rank never attaches and has no heartbeat.
  static HeartbeatReader make();

  /// The descriptor for the rank to inherit; -1 if there is no memory.
  int fd() const {
    return memory_.get();
  }
  /// None if the rank does not use ddp, or has not attached yet.
  std::optional<Heartbeat> read() const;

  /// Whether `ask_to_pause` can ask the rank to leave its group. The rank
  /// expects requests only after `allow_pauses`.
  bool can_pause() const;
  void allow_pauses(std::chrono::milliseconds loss_patience);
  /// Requests pause `number`, counted from 1; see ElasticPage for
  /// `step_patience`.
  void ask_to_pause(uint32_t number, std::chrono::milliseconds step_patience);
  bool is_paused(uint32_t number) const;
  /// Ends the pause: the rank forms its next group with these variables. Throws
  /// LaunchError if the variables are too long.
  void end_pause(uint32_t number, const Variables& variables);

 private:
  struct Unmap {
    void operator()(RankPage* pages) const;
  };

  FileDescriptor memory_;
  std::unique_ptr<RankPage, Unmap> pages_;
};

} // namespace ddp
