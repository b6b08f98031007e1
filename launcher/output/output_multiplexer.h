#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <common/file_descriptor.h>
#include <launcher/output/rank_output.h>
#include <launcher/output/screen.h>

namespace ddp {

/// The two ends of a pseudo-terminal: output that a rank writes to the slave is
/// read unchanged from the master.
struct PseudoTerminal {
  FileDescriptor master;
  FileDescriptor slave;
};

/// Opens a pseudo-terminal for one stream of a rank, so that programs write
/// each line immediately. The pseudo-terminal is as wide as ddprun's terminal,
/// if any. Close the slave once the rank has inherited it; the master then
/// reads EIO when the rank has ended. Throws std::system_error.
PseudoTerminal make_rank_pty();

/// Writes the ranks' output to ddprun's standard output and error, line by
/// line, and to log files. Runs in a separate thread, so that a stalled reader
/// (a pager) delays neither signals nor exits. Ranks wait if their output is
/// not read, as with any pipe; at a terminal they wait only for `patience`,
/// after which their lines are dropped. All functions are thread-safe, and none
/// waits for a reader.
class OutputMultiplexer {
 public:
  /// Writes to `out_fd` and `err_fd`, which must outlive the multiplexer.
  OutputMultiplexer(
      OutputOptions options,
      JobEnvironment job,
      int out_fd,
      int err_fd,
      std::chrono::milliseconds patience = std::chrono::seconds(10));

  /// Calls finish(), and waits until all output is written.
  ~OutputMultiplexer();

  /// Changes the job that the prefixes of later lines describe.
  void set_job(JobEnvironment job);

  /// Adds one stream of a rank: the read end of a pipe, or the master of a
  /// pseudo-terminal. May be called at any time.
  void add(FileDescriptor pipe, const RankStream& rank);

  /// Writes a message from ddprun to its standard error (with a newline added),
  /// after all output that ranks have written so far, unless this output must
  /// wait.
  void message(std::string_view text);

  /// Call this when all ranks have ended: reads the rest of their pipes, and
  /// closes the pipes, even if other processes hold them open. Then done_fd(),
  /// an eventfd, becomes readable; read it before the next call.
  void drain();

  /// Drains, and ends the thread once all output is written. Then done_fd()
  /// becomes readable.
  void finish();

  int done_fd() const {
    return done_.get();
  }

  /// The time at which a blocked reader last took bytes.
  Sink::Clock::time_point last_taken() const {
    return last_taken_;
  }

  /// The last lines that this rank wrote to standard error in this attempt,
  /// shown or not. The list is complete after drain().
  std::vector<std::string> last_lines(int local_rank) const;

 private:
  using Task = std::function<void()>;
  struct Source {
    FileDescriptor pipe;
    RankOutput output;
  };

  void post(Task task);
  void run();
  void wait();
  void run_tasks();
  bool read_once(Source& source);
  void read_all_once();
  void drain_sources();
  void close(Source& source);
  void flush();
  void show_progress();
  void forget_closed();

  const OutputOptions options_;
  Screen screen_;
  FileDescriptor wake_;
  FileDescriptor done_;

  std::atomic<Sink::Clock::time_point> last_taken_{};
  mutable std::mutex mutex_;
  std::vector<Task> tasks_; // for the thread
  std::map<int, std::shared_ptr<LastLines>> last_lines_; // by local rank

  // Used only by the thread.
  JobEnvironment job_;
  std::vector<std::unique_ptr<Source>> sources_;
  int number_ = 0; // number of sources so far
  std::shared_ptr<SharedErrors> errors_ = std::make_shared<SharedErrors>();
  std::unique_ptr<char[]> buffer_;
  bool finishing_ = false;
  std::thread thread_;
};

} // namespace ddp
