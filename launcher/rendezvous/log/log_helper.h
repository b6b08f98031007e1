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

/// The log exists, but cannot be used; retrying does not help.
class LogRejected : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Keeps a job's log in one order, and tracks which members are alive. All
/// functions are called from one thread, except read(), which runs in a
/// separate thread. All functions throw std::exception with the reason in one
/// line.
class LogEngine {
 public:
  virtual ~LogEngine() = default;

  /// Serves the log at a listening socket; returns the address of the log.
  virtual SocketAddress serve(int listener) = 0;
  /// Connects to the log at `endpoint`; `address` is one of the numeric
  /// addresses of this endpoint.
  virtual void connect(
      const SocketAddress& endpoint,
      const std::string& address) = 0;
  /// The nonce of this log: hex digits.
  virtual std::string nonce() = 0;

  /// Passes each entry to `take`, in the same order on all members, from the
  /// first entry on. May also pass texts that are not entries. Does not return.
  virtual void read(const std::function<void(const std::string&)>& take) = 0;
  /// Appends an entry. The number of requests does not depend on other members.
  virtual void append(const std::string& entry) = 0;

  /// Publishes the number of this member's beats, and returns the numbers of
  /// `others`: 0 for a member without beats, kDead for a member that is known
  /// to be dead.
  virtual std::vector<int64_t> beat(
      const std::string& member,
      int64_t count,
      const std::vector<std::string>& others) = 0;
  /// Removes this member from a job that has ended.
  virtual void leave() {}
};

/// The options of a helper of SharedLog, passed as one argument in JSON.
struct HelperOptions {
  std::string member; // letters and digits
  std::string job;
  /// The node's options without secrets.
  NodeOptions nodes;

  /// The endpoints of the log; hosts are names or addresses.
  std::vector<SocketAddress> endpoints() const;
};
std::string helper_word(const HelperOptions& options);
HelperOptions helper_options(const std::string& word);

/// The helper's end of the channel to its agent: its standard input.
constexpr int kHelperChannel = 0;

/// Messages of an agent to its helper process, over a socket that preserves
/// message boundaries: one of these letters, then the text. The helper sends
/// the kind of a SharedLog::Event and its text.
namespace log_message {
constexpr char kPost = 'P'; // the entry
constexpr char kWatch = 'W'; // members, one per line: the answer to each kBeats
constexpr char kLastWill = 'T'; // an entry to append if the agent dies
constexpr char kLeave = 'D'; // the job has ended
} // namespace log_message

/// Sends one message; returns false and sets errno if that fails.
bool send_message(int channel, const std::string& message, int flags);

/// Receives the next message: none if no message has arrived (with
/// MSG_DONTWAIT), an empty one if the other side has closed the socket.
std::optional<std::string> receive_message(int channel, int flags);

/// The main function of a helper process of SharedLog: waits for the log, then
/// transfers entries and beats between the log and the agent until one of them
/// ends.
[[noreturn]] void run_log_helper(
    LogEngine& engine,
    const HelperOptions& options);

} // namespace ddp
