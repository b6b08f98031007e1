#pragma once

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

/// The two ends of a pseudo-terminal: what a rank writes to the slave is read
/// from the master, unchanged.
struct PseudoTerminal {
  FileDescriptor master;
  FileDescriptor slave;
};

/// Opens a terminal for one stream of a rank, so that programs write each line
/// at once. As wide as ddprun's own where it has one. Close the slave once the
/// rank has it: the master then reads EIO when the rank is gone. Throws
/// std::system_error.
PseudoTerminal make_rank_pty();

/// Carries the ranks' output to ddprun's own, line by line, and into log files.
/// Runs in a thread of its own, so that a reader that does not read (a pager)
/// holds up neither signals nor exits. Ranks whose output no one takes have to
/// wait, as at any pipe; at a terminal for `patience` only, then their lines
/// are dropped. All calls are for any thread, and none waits for a reader.
class OutputMultiplexer {
 public:
  /// Writes to `out_fd` and `err_fd`, which have to outlive the multiplexer.
  OutputMultiplexer(
      OutputOptions options,
      JobEnvironment job,
      int out_fd,
      int err_fd,
      std::chrono::milliseconds patience = std::chrono::seconds(10));

  /// Finishes and waits until all is written.
  ~OutputMultiplexer();

  /// What prefixes of lines say from now on.
  void set_job(JobEnvironment job);

  /// Adds the reading end of a pipe, or the master of a pseudo-terminal, that
  /// carries one stream of a rank. At any time.
  void add(FileDescriptor pipe, const RankStream& rank);

  /// Writes lines of ddprun's own to its standard error (the last one's newline
  /// is added), after all that ranks have written by then unless their output
  /// has to wait.
  void message(std::string_view text);

  /// Tells the multiplexer that all ranks are gone: what their pipes still hold
  /// is taken, and they are closed, though someone else may hold them open.
  /// Then done_fd(), an eventfd, becomes readable; read it before the next
  /// call.
  void drain();

  /// Drains, and ends the thread once all is written: then done_fd() becomes
  /// readable.
  void finish();

  int done_fd() const {
    return done_.get();
  }

  /// The last lines that this rank wrote to standard error in this attempt,
  /// wherever they went. Complete after drain().
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

  mutable std::mutex mutex_;
  std::vector<Task> tasks_; // for the thread
  std::map<int, std::shared_ptr<LastLines>> last_lines_; // by local rank

  // The thread's own.
  JobEnvironment job_;
  std::vector<std::unique_ptr<Source>> sources_;
  int number_ = 0; // of sources so far
  std::shared_ptr<SharedErrors> errors_ = std::make_shared<SharedErrors>();
  std::unique_ptr<char[]> buffer_;
  bool finishing_ = false;
  std::thread thread_;
};

} // namespace ddp
