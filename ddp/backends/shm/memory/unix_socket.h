#pragma once

#include <common/file_descriptor.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

namespace ddp::backends::shm {

/// The data with which a rank identifies itself.
struct Greeting {
  char password[24] = {};
  int32_t rank = 0;
  int32_t pid = 0;
};

/// A message between ranks: a greeting and two open files.
struct Message {
  Greeting greeting;
  std::array<FileDescriptor, 2> files;
};

/// A socket that preserves message boundaries. All functions throw `c10::Error`
/// on a failure and after `deadline`.
class UnixSocket {
 public:
  using Clock = std::chrono::steady_clock;

  /// Returns a listening socket with a random name, and stores the name in
  /// `name`.
  static UnixSocket listen(std::string& name);
  static UnixSocket connect(
      const std::string& name,
      Clock::time_point deadline);

  UnixSocket accept(Clock::time_point deadline) const;
  /// Whether the other process runs as the same user.
  bool is_from_own_user() const;
  /// The sender keeps its files open.
  void send(const Message& message, Clock::time_point deadline) const;
  Message receive(Clock::time_point deadline) const;

 private:
  explicit UnixSocket(FileDescriptor descriptor);
  void wait_for(short event, Clock::time_point deadline) const;

  FileDescriptor descriptor_;
};

} // namespace ddp::backends::shm
