#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <common/file_descriptor.h>

namespace ddp {

/// A file that takes bytes as they come, for its owner alone to read, in
/// folders that are made where they are missing. One that would grow beyond a
/// bound is renamed to *.1, replacing an earlier one, and begun anew: between
/// lines, but for lines of more than 64 KiB. What cannot be written is lost,
/// which is reported once; later bytes are tried again.
class LogFile {
 public:
  using Report = std::function<void(const std::string& message)>;

  /// Empties the file where there is one. `max_bytes` is 0 for no bound.
  LogFile(std::string path, int64_t max_bytes, Report report);

  void write(std::string_view bytes);

 private:
  bool open();
  bool append(std::string_view bytes);
  bool rotate();
  std::string unfinished_line() const;
  bool fail(const char* what);

  std::string path_;
  size_t max_bytes_;
  Report report_;
  FileDescriptor file_;
  size_t size_ = 0;
  size_t line_start_ = 0; // of the last, unfinished line
  bool reported_ = false;
};

} // namespace ddp
