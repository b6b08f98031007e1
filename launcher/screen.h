#pragma once

#include <array>
#include <string>
#include <string_view>

namespace ddp {

/// The two streams of a process, ours and each rank's.
enum class Stream { kOut, kErr };

/// Writes the ranks' lines to ddprun's own standard output and error. Lines of
/// different sources never mix. On a terminal one more line can be shown below
/// them, which later lines push down. Collects until flush(), which writes once
/// per stream. A stream that cannot be written any more is dropped, and the
/// other one told. For one thread.
class Screen {
 public:
  Screen(int out_fd, int err_fd);

  bool is_terminal(Stream stream) const;

  /// Adds a piece of a line from `source` (any number >= 0 that tells sources
  /// apart). `prefix` is written where the piece starts a line.
  void add(
      Stream stream,
      int source,
      std::string_view prefix,
      std::string_view text,
      bool ends_line);

  /// Shows `text` below all lines of a terminal until it is replaced; empty to
  /// remove it. Cut to the terminal's width.
  void set_progress(Stream stream, std::string_view text);

  /// Writes what was added.
  void flush();

 private:
  struct Sink {
    int fd = -1;
    bool terminal = false;
    bool lost = false;
    int open_source = -1; // whose line is unfinished
    std::string pending;
    std::string progress;
    bool progress_changed = false;
  };

  Sink& sink(Stream stream);
  const std::string& visible_progress() const;
  void flush_sink(Sink& sink);
  void write(Sink& sink, std::string_view text);

  std::array<Sink, 2> sinks_;
  bool progress_drawn_ = false;
};

/// The start of `text` that fills at most `columns` columns of a terminal,
/// counting one for each UTF-8 character and none for escape sequences.
std::string_view fit_to_columns(std::string_view text, size_t columns);

} // namespace ddp
