#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace ddp {

/// Cuts one stream of bytes into lines, as a person at a terminal would have
/// read them: `\r` starts the line over, so of a progress bar only its last
/// state before the newline remains. A line longer than kMaxPiece bytes comes
/// in pieces, never cut inside a UTF-8 character. NULs are bytes like others.
class LineSplitter {
 public:
  static constexpr size_t kMaxPiece = 64 * 1024;

  /// Takes a piece of a line, without its newline, and whether it ends the
  /// line.
  using Emit = std::function<void(std::string_view text, bool ends_line)>;

  /// Calls `emit` for each line that `bytes` completes; holds the rest.
  void feed(std::string_view bytes, const Emit& emit);

  /// The stream has ended: emits what is held as a line.
  void finish(const Emit& emit);

  /// What the current line shows so far; empty if nothing.
  const std::string& unfinished() const {
    return line_.empty() ? progress_ : line_;
  }

  /// Whether `\r` has started the current line over.
  bool redraws() const {
    return !progress_.empty();
  }

 private:
  void take(std::string_view text, const Emit& emit);
  void start_over();
  void end_line(const Emit& emit);

  std::string line_;
  std::string progress_;
  bool mid_line_ = false; // a piece of the current line has been emitted
};

} // namespace ddp
