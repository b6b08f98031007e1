#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include <launcher/output/output_options.h>
#include <launcher/output/sink.h>

namespace ddp {

/// Writes the ranks' lines to ddprun's own standard output and error. Lines of
/// different sources never mix. A terminal has one more line below them, which
/// later lines push down. Where both streams lead to the same place they are
/// written as one. A stream that cannot be written any more is dropped, and the
/// other one told. For one thread.
class Screen {
 public:
  /// Beyond this many bytes not yet written, a stream wants no more lines.
  static constexpr size_t kMaxWaiting = 1024 * 1024;

  /// A terminal that takes nothing for `patience` (Ctrl-S) gets no more lines
  /// of ranks until it does; how many were dropped is said then.
  Screen(int out_fd, int err_fd, std::chrono::milliseconds patience);

  /// Whether what is written to this stream can be drawn over.
  bool is_terminal(Stream stream) const;

  /// Whether the stream wants lines now. One that does not still takes them.
  bool wants_more(Stream stream) const;

  /// Adds a piece of a line from `source` (any number >= 0 that tells sources
  /// apart). `prefix` is written where the piece starts a line.
  void add(
      Stream stream,
      int source,
      std::string_view prefix,
      std::string_view text,
      bool ends_line);

  /// Adds lines of ddprun's own to standard error, which are not dropped.
  void message(std::string_view text);

  /// What the line below all others shows, as far as it has room; empty for
  /// none.
  void set_progress(std::string_view text);

  /// Writes what can be written now.
  void flush();

  bool all_written() const;

  /// The descriptors that have to become writable before flush() can continue;
  /// -1 for none.
  std::array<int, 2> blocked_fds() const;

  /// Until flush() has something to do besides: -1 for never.
  std::chrono::milliseconds time_left() const;

 private:
  struct Output {
    Sink sink;
    int fd = -1;
    bool terminal = false;
    bool drawable = false; // a terminal that can erase a line
    int open_source = -1; // whose line is unfinished
    std::string drawn; // the last line
    bool stalled = false;
    int64_t dropped = 0; // lines since it stalled
  };

  size_t place_of(Stream stream) const {
    return same_ ? 0 : static_cast<size_t>(stream);
  }
  Output* drawn_output();
  void start_text(Output& output);
  void flush_output(Output& output);
  void draw(Output& output);
  void watch_patience(Output& output);
  void write(Output& output);

  std::chrono::milliseconds patience_;
  std::array<Output, 2> outputs_;
  bool same_ = false; // all goes to the first
  std::string progress_;
};

} // namespace ddp
