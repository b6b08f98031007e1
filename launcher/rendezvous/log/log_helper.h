#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <launcher/rendezvous/node_options.h>
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

/// What a helper of SharedLog is started with, as one word of JSON.
struct HelperOptions {
  std::string member; // letters and digits
  std::string job;
  /// How this node meets others, without what is secret.
  NodeOptions nodes;

  /// Names or addresses.
  std::vector<SocketAddress> endpoints() const;
};
std::string helper_word(const HelperOptions& options);
HelperOptions helper_options(const std::string& word);

/// The helper's end of the channel to its agent: its standard input.
constexpr int kHelperChannel = 0;

/// What an agent says to its helper process, over a socket that keeps messages
/// apart: one of these letters, then the text. The helper says a
/// SharedLog::Event's kind and its text.
namespace log_message {
constexpr char kPost = 'P'; // the entry
constexpr char kWatch = 'W'; // members, one a line: the answer to each kBeats
constexpr char kLastWill = 'T'; // an entry, for when the agent has died
constexpr char kLeave = 'D'; // the job has ended
} // namespace log_message

/// Sends one message; false, with errno, where that cannot be done.
bool send_message(int channel, const std::string& message, int flags);

/// Takes the next message: none if there is none yet (with MSG_DONTWAIT), an
/// empty one where the other side has closed.
std::optional<std::string> receive_message(int channel, int flags);

/// The life of a helper process of SharedLog: waits for the log, then carries
/// entries and beats between it and the agent until one of them is gone.
[[noreturn]] void run_log_helper(
    LogEngine& engine,
    const HelperOptions& options);

} // namespace ddp
