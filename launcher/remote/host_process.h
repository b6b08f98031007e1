#pragma once

#include <array>
#include <optional>
#include <string>

#include <sys/types.h>

#include <common/file_descriptor.h>
#include <launcher/output/sink.h>
#include <launcher/remote/host_commands.h>

namespace ddp {

/// The ddprun of one host, as its remote launcher sees it: on another host the
/// process here is a remote shell. Its output continues in whole lines, so that
/// those of different hosts do not mix.
class HostProcess {
 public:
  /// Starts it and hands it the secret. Throws std::system_error, LaunchError.
  HostProcess(
      HostCommand command,
      const std::string& secret,
      Sink* out,
      Sink* err);

  const std::string& host() const {
    return command_.host;
  }
  bool is_running() const {
    return !wait_status_.has_value();
  }
  /// Whether its ddprun has made itself heard.
  bool has_started() const {
    return started_;
  }
  /// Whether that has said that it ends: its exit code is the job's.
  bool has_finished() const {
    return finished_;
  }
  /// Of its output; -1 for what has ended, or whose sink has much to write.
  std::array<int, 2> fds_to_poll() const;
  /// Passes on what there is to read.
  void carry();
  /// Whether it has ended; takes its last output then.
  bool reap();
  /// Of its ddprun, or of the remote shell; 128 + s for signal s.
  int exit_code() const;
  /// ": ssh ended with exit code 255: Connection refused".
  std::string describe_end() const;

  /// A signal for its ddprun. One that has not started is ended.
  void pass_signal(int signal);
  void kill();

 private:
  struct Stream {
    FileDescriptor source;
    Sink* sink = nullptr;
    std::string held = {}; // not passed on yet
  };

  void tell(const std::string& text);
  bool take(const std::string& mark);
  void pass_on();
  static bool read_some(Stream& stream);
  static void pass_on(Stream& stream);

  HostCommand command_;
  std::string number_; // in the marks of its ddprun
  pid_t pid_ = -1;
  FileDescriptor input_;
  std::array<Stream, 2> streams_; // output and errors
  bool started_ = false;
  bool finished_ = false;
  std::optional<int> wait_status_;
};

} // namespace ddp
