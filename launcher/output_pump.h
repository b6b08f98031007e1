#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <launcher/file_descriptor.h>
#include <launcher/line_splitter.h>
#include <launcher/screen.h>

namespace ddp {

/// Carries the ranks' output to ddprun's own, line by line, with "[rank] "
/// before each where there are several. Runs in a thread of its own, so that a
/// reader that does not read (a pager) holds up neither signals nor exits.
class OutputPump {
 public:
  /// Writes to `out_fd` and `err_fd`, which have to outlive the pump.
  OutputPump(int world_size, int out_fd, int err_fd);

  /// Finishes and waits until all is written.
  ~OutputPump();

  /// Adds the reading end of a pipe that carries one stream of a rank. Before
  /// start().
  void add(FileDescriptor pipe, int rank, Stream stream);

  /// Starts the thread. After the last fork, which must not copy a process
  /// with threads in it.
  void start();

  /// Writes a line of ddprun's own to its standard error, in order with the
  /// ranks' output. From any thread.
  void message(std::string_view line);

  /// Tells the pump that all ranks are gone: what the pipes still hold is
  /// written, then done_fd() becomes readable.
  void finish();

  int done_fd() const {
    return done_.read_end.get();
  }

 private:
  struct Source {
    FileDescriptor pipe;
    int number; // tells sources apart
    int rank;
    Stream stream;
    std::string prefix;
    LineSplitter lines;
  };

  void run();
  bool read_once(Source& source);
  void close(Source& source);
  void emit(Source& source, std::string_view text, bool ends_line);

  int world_size_;
  Screen screen_;
  Pipe messages_;
  Pipe done_;
  std::vector<std::unique_ptr<Source>> sources_;
  std::thread thread_;
};

} // namespace ddp
