#pragma once

#include <algorithm>
#include <ctime>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <common/file_descriptor.h>
#include <common/scheduler/rank_environment.h>
#include <launcher/output/line_splitter.h>
#include <launcher/output/output_options.h>
#include <launcher/output/screen.h>
#include <launcher/output/shared_errors.h>

namespace ddp {

/// A log file that only its owner can read; missing folders are created. Bytes
/// that cannot be written are lost; the loss is reported once, and later writes
/// are tried again.
class LogFile {
 public:
  using Report = std::function<void(const std::string& message)>;

  /// Appends to the file at `path`.
  LogFile(std::string path, Report report);

  void write(std::string_view bytes);

 private:
  bool open();
  void report(const char* what, int error);

  std::string path_;
  Report report_;
  FileDescriptor file_;
  bool reported_ = false;
};

/// The prefix of each line of a rank. The `${...}` variables that OutputOptions
/// lists are replaced, others are not; `${time}` is the local time as HH:MM:SS.
class LinePrefix {
 public:
  LinePrefix(
      const OutputOptions& options,
      const JobEnvironment& job,
      const RankStream& rank);

  /// The prefix for a line written at time `now`.
  std::string text(std::time_t now) const;

 private:
  std::string text_;
  bool has_time_ = false;
};

/// The last lines of a stream: at most kLines, and at most the last kBytes of
/// each. Thread-safe.
class LastLines {
 public:
  static constexpr size_t kLines = 20;
  static constexpr size_t kBytes = 1024;

  /// Adds a line, given without its newline.
  void add(std::string_view line) {
    const std::lock_guard<std::mutex> lock(mutex_);
    lines_.emplace_back(
        line.substr(line.size() - std::min(line.size(), kBytes)));
    if (lines_.size() > kLines) {
      lines_.pop_front();
    }
  }

  std::vector<std::string> lines() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return {lines_.begin(), lines_.end()};
  }

 private:
  mutable std::mutex mutex_;
  std::deque<std::string> lines_;
};

/// Writes one stream of a rank to the destinations that the options select: its
/// log file, the filtered log file, the screen, the last lines. Not
/// thread-safe.
class RankOutput {
 public:
  /// `number` identifies the stream. `options` and `screen` must outlive this
  /// object. For standard error, `last_lines` keeps the last lines, and
  /// `errors` ensures that an error of several ranks is shown once.
  RankOutput(
      const OutputOptions& options,
      const JobEnvironment& job,
      const RankStream& rank,
      int number,
      Screen& screen,
      std::shared_ptr<LastLines> last_lines,
      std::shared_ptr<SharedErrors> errors);

  void take(std::string_view bytes);

  /// The numbers of the job's ranks have changed.
  void renumber(const OutputOptions& options, const JobEnvironment& job);

  /// The stream has ended.
  void finish();

  /// Whether the screen accepts more of this stream, or does not show the
  /// stream.
  bool wants_more() const {
    return !shown_ || screen_.wants_more(rank_.stream);
  }

  /// The unfinished line with its prefix if it is a progress bar of rank 0 on a
  /// terminal; otherwise empty.
  std::string progress();

 private:
  void emit(std::string_view text, bool ends_line);
  void show(std::string_view text, bool ends_line);
  void show_held_error();
  void filter(std::string_view text);

  RankStream rank_;
  int number_;
  Screen& screen_;
  std::shared_ptr<LastLines> last_lines_;
  std::shared_ptr<SharedErrors> errors_;
  std::unique_ptr<LogFile> log_;
  std::unique_ptr<LogFile> filtered_;
  bool shown_ = false;
  const std::vector<std::string>& filters_;
  bool needs_lines_ = false;
  bool terminal_ = false;
  LinePrefix prefix_;
  std::time_t now_ = 0;
  LineSplitter lines_;
  LineSplitter::Emit emit_;
  std::vector<std::string> held_error_; // the error's lines so far
};

} // namespace ddp
