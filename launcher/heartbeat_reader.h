#pragma once

#include <cstdint>
#include <string>

#include <launcher/file_descriptor.h>
#include <launcher/heartbeat.h>

namespace ddp {

/// ddprun's end of a rank's HeartbeatPage. The rank can write what it likes
/// there; it cannot make the memory smaller.
class HeartbeatReader {
 public:
  HeartbeatReader() = default;
  HeartbeatReader(HeartbeatReader&& other) noexcept;
  HeartbeatReader& operator=(HeartbeatReader&& other) noexcept;
  ~HeartbeatReader();

  /// Makes the memory. Where the kernel or a container gives none, there is
  /// no heartbeat: such a rank is never attached.
  static HeartbeatReader make();

  /// The descriptor for the rank; -1 where there is none.
  int fd() const {
    return memory_.get();
  }
  /// Whether the rank uses ddp and has said so.
  bool attached() const;
  bool joined() const;
  uint64_t beats() const;
  int64_t step() const;
  /// What the rank does or did last, without control characters; empty where it
  /// is just being written.
  std::string activity() const;

 private:
  FileDescriptor memory_;
  HeartbeatPage* page_ = nullptr;
};

} // namespace ddp
