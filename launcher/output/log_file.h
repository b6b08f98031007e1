#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <common/file_descriptor.h>

namespace ddp {

/// A file that takes bytes as they come, for its owner alone to read, in
/// folders that are made where they are missing. What cannot be written is
/// lost, which is reported once; later bytes are tried again.
class LogFile {
 public:
  using Report = std::function<void(const std::string& message)>;

  /// Writes at the end of the file.
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

} // namespace ddp
