#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <sys/types.h>

#include <common/file_descriptor.h>
#include <launcher/agent/heartbeat_reader.h>
#include <launcher/job.h>
#include <launcher/output/output_multiplexer.h>

namespace ddp {

/// The processes of one attempt of a job: the ranks of this node, and their
/// store, which serves only this attempt.
class Attempt {
 public:
  struct Rank {
    int rank = 0;
    int local_rank = 0;
    pid_t pid = -1;
    FileDescriptor process; // a pidfd, if the kernel supports pidfds
    HeartbeatReader heartbeat;
    std::string error_file;
  };

  /// Starts all processes. If `listener` has only a port, another node serves
  /// the store. `ranks_limit` is the ranks' RLIMIT_NOFILE. `watch` is called
  /// with `exec_errors` before the ranks start, and with each rank's pidfd
  /// before the next one starts: the order in which they become readable
  /// counts. Call from the main thread. Throws LaunchError or
  /// std::system_error; the caller must then end the processes already started.
  Attempt(
      const Job& job,
      int number,
      Listener listener,
      const rlimit& ranks_limit,
      OutputMultiplexer& output,
      const std::function<void(int)>& watch);

  /// Whether all ranks can be asked to leave their group and stay alive.
  bool can_pause() const;
  /// Asks all ranks to leave their group; see ElasticPage for `step_patience`.
  void ask_to_pause(std::chrono::milliseconds step_patience);
  /// Whether all ranks have left their group.
  bool is_paused() const;
  /// Ends the pause: the ranks continue with their new numbers from the job's
  /// environment, and with a new store. The parameters and exceptions are those
  /// of the constructor.
  void go_on(Listener listener);

  const int number;
  std::vector<Rank> ranks;
  pid_t store = -1;
  /// Becomes readable with errno, an int, if a rank cannot execute its program,
  /// or with end-of-file once all ranks execute their programs.
  FileDescriptor exec_errors;

 private:
  void start_rank(int local_rank, int port, int exec_errors_to);
  void start_own_store(Listener listener);
  void end_store();
  FileDescriptor output_end(const Rank& rank, Stream stream);

  const Job& job_;
  rlimit ranks_limit_;
  OutputMultiplexer& output_;
  uint32_t pauses_ = 0; // number of requested pauses
};

} // namespace ddp
