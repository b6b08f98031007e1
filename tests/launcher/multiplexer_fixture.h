// A multiplexer with pipes or a terminal in this process, for tests.
#pragma once

#include <fcntl.h>
#include <launcher/output/output_multiplexer.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <tests/launcher/launched_job.h>
#include <tests/support/skip.h>
#include <tests/support/temporary_folder.h>
#include <ctime>

namespace ddp::test {

constexpr int kReadPatience = 10000; // ms
const JobEnvironment kTwoRanks = [] {
  JobEnvironment job;
  job.world_size = 2;
  job.role = "trainer";
  job.node_rank = 1;
  job.host = "box";
  return job;
}();

inline bool readable(int fd, int milliseconds) {
  pollfd polled{fd, POLLIN, 0};
  return poll(&polled, 1, milliseconds) > 0;
}

// A reader of ddprun's output.
class Reader {
 public:
  explicit Reader(FileDescriptor fd) : fd_(std::move(fd)) {}

  const std::string& text() const {
    return text_;
  }

  void until(const std::string& part) {
    while (text_.find(part) == std::string::npos) {
      if (!readable(fd_.get(), kReadPatience)) {
        throw std::runtime_error("no '" + part + "' in: " + text_);
      }
      if (!once()) {
        throw std::runtime_error("the end before '" + part + "': " + text_);
      }
    }
  }

  const std::string& to_end() {
    while (fd_ && readable(fd_.get(), kReadPatience) && once()) {
    }
    return text_;
  }

  void until_size(size_t size) {
    while (text_.size() < size && readable(fd_.get(), kReadPatience) &&
           once()) {
    }
  }

  bool has_nothing() const {
    return text_.empty() && !readable(fd_.get(), 0);
  }

  void close() {
    fd_.reset();
  }

 private:
  bool once() {
    char buffer[65536];
    const ssize_t size = read(fd_.get(), buffer, sizeof buffer);
    if (size > 0) {
      text_.append(buffer, static_cast<size_t>(size));
    }
    return size > 0;
  }

  FileDescriptor fd_;
  std::string text_;
};

// Ignores SIGPIPE, as ddprun does.
struct WithoutSigpipe {
  sighandler_t before = std::signal(SIGPIPE, SIG_IGN);
  ~WithoutSigpipe() {
    std::signal(SIGPIPE, before);
  }
};

// A multiplexer that writes to two pipes.
struct PumpTest {
  WithoutSigpipe without_sigpipe;
  Pipe out_pipe = make_pipe();
  Pipe err_pipe = make_pipe();
  Reader out{std::move(out_pipe.read_end)};
  Reader err{std::move(err_pipe.read_end)};
  std::unique_ptr<OutputMultiplexer> multiplexer;

  explicit PumpTest(const OutputOptions& options = {}) {
    multiplexer = std::make_unique<OutputMultiplexer>(
        options, kTwoRanks, out_pipe.write_end.get(), err_pipe.write_end.get());
  }

  FileDescriptor rank(int rank, Stream stream = Stream::kOut, int attempt = 0) {
    Pipe pipe = make_pipe();
    multiplexer->add(std::move(pipe.read_end), {rank, rank, stream, attempt});
    return std::move(pipe.write_end);
  }

  void drain() {
    multiplexer->drain();
    REQUIRE(readable(multiplexer->done_fd(), kReadPatience));
    uint64_t count = 0;
    REQUIRE(read(multiplexer->done_fd(), &count, sizeof count) == sizeof count);
  }

  void finish() {
    std::thread closing([this] { // waits for the reader
      multiplexer.reset();
      out_pipe.write_end.reset();
      err_pipe.write_end.reset();
    });
    out.to_end();
    err.to_end();
    closing.join();
  }
};

// A terminal in raw mode.
inline PseudoTerminal open_terminal() {
  try {
    return make_rank_pty();
  } catch (const std::exception& error) { // some containers lack ptys
    skip(error.what());
  }
}

struct TerminalTest {
  PseudoTerminal terminal = open_terminal();
  FileDescriptor to_keep{dup(terminal.slave.get())};
  Reader reader{std::move(terminal.master)};
  std::unique_ptr<OutputMultiplexer> multiplexer;

  explicit TerminalTest(int patience = kReadPatience) {
    multiplexer = std::make_unique<OutputMultiplexer>(
        OutputOptions(),
        kTwoRanks,
        terminal.slave.get(),
        to_keep.get(),
        std::chrono::milliseconds(patience));
  }

  FileDescriptor rank(int rank) {
    Pipe pipe = make_pipe();
    multiplexer->add(std::move(pipe.read_end), {rank, rank, Stream::kOut, 0});
    return std::move(pipe.write_end);
  }

  const std::string& finish() {
    multiplexer->finish();
    reader.until("the end");
    multiplexer.reset();
    return reader.text();
  }
};

inline void say(const FileDescriptor& rank, const std::string& text) {
  REQUIRE(write_all(rank.get(), text) == 0);
}

// Writes until the pipe accepts no more for `patience` milliseconds; returns
// the number of accepted bytes.
inline size_t flood(
    const FileDescriptor& rank,
    size_t enough,
    int patience = kReadPatience) {
  fcntl(rank.get(), F_SETFL, O_NONBLOCK);
  const std::string text(4095, 'x');
  size_t total = 0;
  pollfd polled{rank.get(), POLLOUT, 0};
  while (total < enough && poll(&polled, 1, patience) > 0) {
    total += static_cast<size_t>(
        std::max<ssize_t>(0, write(rank.get(), (text + "\n").data(), 4096)));
  }
  return total;
}

inline std::string prefix_of(const std::string& form) {
  OutputOptions options;
  if (form != "-") {
    options.line_prefix = form;
  }
  const RankStream rank{7, 3, Stream::kOut, 0};
  return LinePrefix(options, kTwoRanks, rank).text(0);
}

inline OutputOptions files_in(const TemporaryFolder& folder) {
  OutputOptions options;
  options.log_dir = folder / "logs";
  return options;
}

} // namespace ddp::test
