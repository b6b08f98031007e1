#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace ddp {

/// Splits a stream of bytes into lines, as they would appear on a terminal.
/// `\r` starts the line over, so only the last state of a progress bar before
/// the newline remains. A line longer than kMaxPiece bytes is emitted in
/// pieces, which never split a UTF-8 character. NULs are ordinary bytes.
class LineSplitter {
 public:
  static constexpr size_t kMaxPiece = 64 * 1024;

  /// Receives a piece of a line, without its newline, and whether it ends the
  /// line.
  using Emit = std::function<void(std::string_view text, bool ends_line)>;

  /// Calls `emit` for each line that `bytes` completes; keeps the rest.
  void feed(std::string_view bytes, const Emit& emit);

  /// The stream has ended: emits the rest as a line.
  void finish(const Emit& emit);

  /// The current line so far; may be empty.
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
