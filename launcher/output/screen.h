#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include <launcher/output/output_options.h>
#include <launcher/output/sink.h>

namespace ddp {

/// Writes the ranks' lines to ddprun's standard output and error. Lines of
/// different sources never mix. A terminal shows one more line below the ranks'
/// lines, which later lines push down. If both streams lead to the same file,
/// they are written as one. If a stream fails, its output is dropped (of a
/// file, only what cannot be written), and the other stream reports the loss.
/// Not thread-safe.
class Screen {
 public:
  /// The number of unwritten bytes from which `wants_more` returns false,
  /// unless the stream is stalled.
  static constexpr size_t kMaxWaiting = 1024 * 1024;

  /// If a terminal accepts no output for `patience` (Ctrl-S), the ranks' lines
  /// are dropped until it accepts output again; then the number of dropped
  /// lines is reported.
  Screen(int out_fd, int err_fd, std::chrono::milliseconds patience);

  /// Whether text on this stream can be overwritten.
  bool is_terminal(Stream stream) const;

  /// Whether the caller should add lines now. add() accepts lines in any case.
  bool wants_more(Stream stream) const;

  /// Adds a piece of a line from `source`, any number >= 0 that identifies the
  /// source. `prefix` is written if the piece starts a line.
  void add(
      Stream stream,
      int source,
      std::string_view prefix,
      std::string_view text,
      bool ends_line);

  /// Adds lines from ddprun, which are not dropped, to standard error.
  void message(std::string_view text);

  /// Sets the text of the line below all others, which is cut to the width of
  /// the terminal; empty for none.
  void set_progress(std::string_view text);

  /// Writes as much as possible without waiting.
  void flush();

  bool all_written() const;

  /// The descriptors that must become writable before flush() can continue; -1
  /// for none.
  std::array<int, 2> blocked_fds() const;

  /// The time at which a blocked stream last accepted bytes.
  Sink::Clock::time_point last_taken() const {
    return std::max(
        outputs_[0].sink.last_taken(), outputs_[1].sink.last_taken());
  }

  /// The time until flush() has other work to do; -1 for never.
  std::chrono::milliseconds time_left() const;

 private:
  struct Output {
    Sink sink;
    int fd = -1;
    bool terminal = false;
    bool drawable = false; // a terminal that can erase a line
    int open_source = -1; // of the unfinished line
    std::string drawn; // the last line
    bool stalled = false;
    int64_t dropped = 0; // lines since it stalled
  };

  size_t index_of(Stream stream) const {
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
  bool same_ = false; // all output goes to the first
  std::string progress_;
};

} // namespace ddp
