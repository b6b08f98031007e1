#pragma once

#include <array>
#include <optional>
#include <string>

#include <sys/resource.h>
#include <sys/types.h>

#include <common/file_descriptor.h>
#include <launcher/output/sink.h>
#include <launcher/remote/host_commands.h>

namespace ddp {

/// The ddprun of one host, as seen by its remote launcher. For another host,
/// the local process is a remote shell. Output is forwarded in whole lines, so
/// that lines of different hosts do not mix.
class HostProcess {
 public:
  /// Starts the process with a limit of open files, and sends the secret to it.
  /// Throws std::system_error or LaunchError.
  HostProcess(
      HostCommand command,
      const std::string& secret,
      const rlimit& descriptor_limit,
      Sink* out,
      Sink* err);

  const std::string& host() const {
    return command_.host;
  }
  bool is_running() const {
    return !wait_status_.has_value();
  }
  /// Whether the host's ddprun has reported that it started.
  bool has_started() const {
    return started_;
  }
  /// Whether the host's ddprun has reported that it ends; its exit code is then
  /// the job's.
  bool has_finished() const {
    return finished_;
  }
  /// The descriptors of the process's output; -1 for a stream that has ended,
  /// or whose sink has too much unwritten output.
  std::array<int, 2> fds_to_poll() const;
  /// Forwards the output that can be read now.
  void carry();
  /// Returns whether the process has ended; if so, forwards the rest of its
  /// output.
  bool reap();
  /// The exit code of the host's ddprun or of the remote shell; 128 + s for
  /// signal s.
  int exit_code() const;
  /// ": ssh ended with exit code 255: Connection refused".
  std::string describe_end() const;

  /// Forwards a signal to the host's ddprun. Ends a ddprun that has not
  /// started.
  void pass_signal(int signal);
  void kill();

 private:
  struct Stream {
    FileDescriptor source;
    Sink* sink = nullptr;
    std::string held = {}; // not forwarded yet
  };

  void tell(const std::string& text);
  bool take(const std::string& mark);
  void pass_on();
  static bool read_some(Stream& stream);
  static void pass_on(Stream& stream);

  HostCommand command_;
  std::string number_; // in the marks of the host's ddprun
  pid_t pid_ = -1;
  FileDescriptor input_;
  std::array<Stream, 2> streams_; // output and errors
  bool started_ = false;
  bool finished_ = false;
  std::optional<int> wait_status_;
};

} // namespace ddp
