#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <sys/types.h>

#include <common/file_descriptor.h>
#include <launcher/agent/heartbeat_reader.h>
#include <launcher/job.h>
#include <launcher/output/output_multiplexer.h>

namespace ddp {

/// The processes of one start of a job: the ranks of this node, and the store
/// at which they meet, which is this attempt's alone.
class Attempt {
 public:
  struct Rank {
    int rank = 0;
    int local_rank = 0;
    pid_t pid = -1;
    FileDescriptor process; // a pidfd, where the kernel has them
    HeartbeatReader heartbeat;
    std::string error_file;
  };

  /// Starts all. If `listener` has a port only, the store is another node's.
  /// `ranks_limit` is their RLIMIT_NOFILE. Call from the main thread. Throws
  /// LaunchError, std::system_error; the caller ends what was started by then.
  Attempt(
      const Job& job,
      int number,
      Listener listener,
      const rlimit& ranks_limit,
      OutputMultiplexer& output);

  /// Whether all ranks can be asked to leave their group and live on.
  bool can_pause() const;
  /// Asks them to; see ElasticPage for the patience.
  void ask_to_pause(std::chrono::milliseconds step_patience);
  /// Whether all have done so.
  bool is_paused() const;
  /// Ends that: they continue, in the places that the job's environment gives
  /// them now, with a store of their own. As the constructor.
  void go_on(Listener listener);

  const int number;
  std::vector<Rank> ranks;
  pid_t store = -1;
  /// Becomes readable with errno, an int, where a rank could not execute its
  /// program, or with the end of file once all have.
  FileDescriptor exec_errors;

 private:
  void start_rank(int local_rank, int port, int exec_errors_to);
  void start_own_store(Listener listener);
  void end_store();
  FileDescriptor output_end(const Rank& rank, Stream stream);

  const Job& job_;
  rlimit ranks_limit_;
  OutputMultiplexer& output_;
  uint32_t pauses_ = 0; // asked for
};

} // namespace ddp
