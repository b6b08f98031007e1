#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <launcher/sockets.h>

namespace ddp {

/// The log is there and cannot be used; trying again is of no use.
class LogRefused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Who keeps a job's log in one order, and knows which members live. Calls come
/// from one thread, but read(), which has one of its own, and throw
/// std::exception with the reason in one line.
class LogEngine {
 public:
  virtual ~LogEngine() = default;

  /// Serves the log at a listening socket; the address where it is reached.
  virtual SocketAddress serve(int listener) = 0;
  /// Finds the log at an endpoint, which `address` reaches.
  virtual void connect(
      const SocketAddress& endpoint,
      const std::string& address) = 0;
  /// What is this log's alone: hex digits.
  virtual std::string nonce() = 0;

  /// Gives the value of each place, from the first, as soon as it has one.
  /// Does not return.
  virtual void read(const std::function<void(const std::string&)>& take) = 0;
  /// Puts a value that no other is equal to into a place, where that is free;
  /// whether it is there.
  virtual bool append(uint64_t place, const std::string& value) = 0;

  /// Says how often this member has made itself heard, and asks the same of
  /// others; 0 for one that never has, kDead where that is known.
  virtual std::vector<int64_t> beat(
      const std::string& member,
      int64_t count,
      const std::vector<std::string>& others) = 0;
  /// This member leaves a job that has ended.
  virtual void leave() {}
};

} // namespace ddp
