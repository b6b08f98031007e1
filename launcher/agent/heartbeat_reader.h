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

/// What a rank shows of itself.
struct Heartbeat {
  bool joined = false;
  /// Whether a collective of its last group failed because of another rank.
  bool failed_by_another = false;
  uint64_t beats = 0;
  int64_t step = 0;
  /// What it does or did last, without control characters; empty if that is
  /// just being written.
  std::string activity;
};

/// ddprun's end of a rank's HeartbeatPage, and of the ElasticPage behind it.
/// The rank can write what it likes there; it cannot make the memory smaller.
class HeartbeatReader {
 public:
  /// Makes the memory. If the kernel or a container gives none, there is no
  /// heartbeat: such a rank is never attached.
  static HeartbeatReader make();

  /// The descriptor for the rank; -1 where there is none.
  int fd() const {
    return memory_.get();
  }
  /// None of a rank that does not use ddp, or has not said so yet.
  std::optional<Heartbeat> read() const;

  /// Whether the rank can be asked to leave its group, by `ask_to_pause`, and
  /// may be from `allow_pauses` on.
  bool can_pause() const;
  void allow_pauses(std::chrono::milliseconds loss_patience);
  /// The `number`th pause, from 1 on; see ElasticPage for the patience.
  void ask_to_pause(uint32_t number, std::chrono::milliseconds step_patience);
  bool is_paused(uint32_t number) const;
  /// Ends it: the rank forms its next group by these variables. Throws
  /// LaunchError where they are too long.
  void end_pause(uint32_t number, const Variables& variables);

 private:
  struct Unmap {
    void operator()(RankPage* pages) const;
  };

  FileDescriptor memory_;
  std::unique_ptr<RankPage, Unmap> pages_;
};

} // namespace ddp
