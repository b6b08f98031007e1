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

/// Keeps a job's log in one order, and knows which members are alive. All
/// functions are called from one thread, except read(), which has a separate
/// one. They throw std::exception with the reason in one line.
class LogEngine {
 public:
  virtual ~LogEngine() = default;

  /// Serves the log at a listening socket; returns the address of the log.
  virtual SocketAddress serve(int listener) = 0;
  /// Connects to the log at an endpoint, of which `address` is a numeric
  /// address.
  virtual void connect(
      const SocketAddress& endpoint,
      const std::string& address) = 0;
  /// The nonce of this log: hex digits.
  virtual std::string nonce() = 0;

  /// Passes each entry to `take`, in the same order on all members, from the
  /// first one on. Texts that are not entries may be among them. Does not
  /// return.
  virtual void read(const std::function<void(const std::string&)>& take) = 0;
  /// Appends an entry, by a number of requests that does not depend on others.
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

  /// Names or addresses.
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

/// Receives the next message: none if there is none yet (with MSG_DONTWAIT), an
/// empty one if the other side has closed the socket.
std::optional<std::string> receive_message(int channel, int flags);

/// The main function of a helper process of SharedLog: waits for the log, then
/// transfers entries and beats between the log and the agent until one of them
/// ends.
[[noreturn]] void run_log_helper(
    LogEngine& engine,
    const HelperOptions& options);

} // namespace ddp
