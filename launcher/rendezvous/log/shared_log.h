#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>

#include <sys/types.h>

#include <common/file_descriptor.h>
#include <launcher/rendezvous/log/log_helper.h>

namespace ddp {

/// The maximum size of an entry in bytes: a plan with the maximum number of
/// nodes fits.
constexpr size_t kLargestEntry = 320 * 1024;

/// A log to which all agents of a job append, and which they read in the same
/// order from the beginning. The log is in a c10d::TCPStore at the rendezvous
/// endpoint, or in etcd. A helper process communicates with the log, so no
/// function of this class waits for the network. The contents of the log are
/// not trusted: see Authenticator.
class SharedLog {
 public:
  struct Event {
    /// The first letter of the helper's message.
    enum class Kind : char {
      kUnreachable = 'U',
      kRejected = 'R', // the exit code of ddprun, and the reason
      // The nonce, this node's address for others, 1 if this node serves the
      // log.
      kConnected = 'C',
      kEntry = 'E',
      kBeats = 'B', // "member count", one per line
      kLost = 'L'
    };
    Kind kind = Kind::kLost;
    /// kConnected: the store's nonce. kEntry: the entry. kUnreachable (the
    /// helper retries), kRejected (the helper does not retry) and kLost: the
    /// reason, one line for the user.
    std::string text = {};
    /// kConnected: the numeric address at which others reach this node.
    std::string own_address = {};
    /// kConnected: whether the helper serves the log.
    bool serves = false;
    /// kRejected: the exit code of ddprun.
    int code = 0;
    /// kBeats: the number of beats of each watched member that has sent any, or
    /// kDead. Each beat of this member sends this event, which also shows that
    /// the log works.
    std::map<std::string, int64_t> beats = {};
  };

  /// Starts the helper, `ddprun-store` or `ddprun-etcd`, which dies with this
  /// process. The helper's unique member name identifies this agent. The helper
  /// tries all addresses of the endpoints in turn until one answers. If this
  /// node serves the log, the helper serves the store at the endpoint. Call
  /// from the main thread. Throws std::system_error.
  SharedLog(const std::string& program, const HelperOptions& options);

  /// Kills the helper, and thereby a store that it serves; the process's event
  /// loop reaps the helper. Posted entries that next() has not returned may be
  /// lost.
  ~SharedLog();

  SharedLog(const SharedLog&) = delete;
  SharedLog& operator=(const SharedLog&) = delete;

  /// Becomes readable when next() has an event.
  int fd() const {
    return channel_.get();
  }
  pid_t pid() const {
    return pid_;
  }

  /// The next event, if any; does not wait. Only kUnreachable precedes
  /// kConnected, and no event follows kLost or kRejected.
  std::optional<Event> next();

  /// Appends an entry to the log, once the log is connected; next() returns the
  /// entry like those of other nodes. The entry is dropped if the store is lost
  /// or the text is empty. Throws std::length_error above kLargestEntry.
  void post(const std::string& text);

  /// Sets an entry that the helper appends if this process dies without
  /// destroying the SharedLog. A helper that serves the store dies with this
  /// process instead.
  void set_last_will(const std::string& text);

  /// Sets the members whose beats are reported. Call this after each kBeats, so
  /// that an agent that hangs sends no beats.
  void watch(const std::set<std::string>& members);

  /// The job has ended: the helper removes keys that are no longer needed, and
  /// ends by itself within seconds.
  void leave();

 private:
  Event helper_ended() const;
  void send(std::string message);
  void send_waiting();

  FileDescriptor channel_;
  pid_t pid_ = -1;
  std::deque<std::string> waiting_; // messages until the helper accepts more
  bool was_heard_ = false; // the helper
  bool lost_ = false;
  bool left_ = false;
};

} // namespace ddp
