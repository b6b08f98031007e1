#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include <common/file_descriptor.h>
#include <launcher/rendezvous/log/log_helper.h>

namespace ddp {

/// The most bytes that an entry can have.
constexpr size_t kLargestEntry = 64 * 1024;

/// A log that all agents of a job append to and read in the same order from its
/// beginning, in a c10d::TCPStore at the rendezvous endpoint or in an etcd. A
/// helper process speaks to it, so no call here waits for the network.
/// What is in the log is not to be trusted: see Authenticator.
class SharedLog {
 public:
  struct Event {
    /// As the helper's messages begin.
    enum class Kind : char {
      kUnreachable = 'U',
      kRefused = 'R', // ddprun's exit code, and why
      // The nonce, this node's address for others, 1 if it serves the log.
      kConnected = 'C',
      kEntry = 'E',
      kBeats = 'B', // "member count", one a line
      kLost = 'L'
    };
    Kind kind = Kind::kLost;
    /// kConnected: the store's nonce; kEntry: the entry; kUnreachable (it tries
    /// again), kRefused (it cannot) and kLost: why, one line for the user.
    std::string text = {};
    /// kConnected: this node's numeric address for others.
    std::string own_address = {};
    /// kConnected: whether the helper serves the log.
    bool serves = false;
    /// kRefused: ddprun's exit code.
    int code = 0;
    /// kBeats: the beats so far of each watched member that ever beat, or
    /// kDead. Comes with each beat of our own, so it also says that the log
    /// lives.
    std::map<std::string, int64_t> beats = {};
  };

  /// Starts the helper, `ddprun-store` or `ddprun-etcd`, which dies with this
  /// process. Its member is this agent's name, the only one of that name. It
  /// tries endpoints in turn, with all addresses of a name, until one answers;
  /// where that is this node's to serve, it serves the store there. Call from
  /// the main thread. Throws std::system_error.
  SharedLog(const std::string& program, const HelperOptions& options);

  /// Kills the helper, and the store with it where it served that; reaping it
  /// is left to the process's own loop. What was posted but has not come back
  /// as an entry may be lost.
  ~SharedLog();

  SharedLog(const SharedLog&) = delete;
  SharedLog& operator=(const SharedLog&) = delete;

  /// Becomes readable when next() has something.
  int fd() const {
    return channel_.get();
  }
  pid_t pid() const {
    return pid_;
  }

  /// The next event, if there is one; does not wait. Before kConnected comes
  /// only kUnreachable, and nothing after kLost and kRefused.
  std::optional<Event> next();

  /// Appends an entry to the log, as soon as there is one; it comes back by
  /// next() as everybody's entries do. Dropped where the store is lost, or the
  /// text is empty. Throws std::length_error above kLargestEntry.
  void post(const std::string& text);

  /// An entry that the helper appends if this process dies without destroying
  /// the SharedLog; where it serves the store, it dies with it instead.
  void set_last_will(const std::string& text);

  /// Whose beats are reported from now on. To be answered to each kBeats: for
  /// an agent that stands still no one shall wait.
  void watch(const std::vector<std::string>& members);

  /// The job has ended: the helper takes away what no one needs any more, and
  /// ends by itself within seconds.
  void leave();

 private:
  void send(std::string message);
  void send_waiting();

  FileDescriptor channel_;
  pid_t pid_ = -1;
  std::deque<std::string> waiting_; // for a helper that takes nothing just now
  bool lost_ = false;
  bool left_ = false;
};

} // namespace ddp
