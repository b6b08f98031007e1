#pragma once

#include <common/file_descriptor.h>

#include <cstddef>
#include <functional>
#include <string>

namespace ddp::detail {

/// The remedy after a failed write with the errno `error`: "; free space, or
/// ...". Empty if no remedy is known.
std::string write_advice(int error);

/// Replaces a file atomically: readers get the old contents until `commit()`,
/// and then the new contents.
///
/// New contents go to an unnamed file in the target's folder (`O_TMPFILE`,
/// open(2)), which leaves nothing behind if the process dies; on file systems
/// without support, to `.<name>.tmp.<pid>.<n>`. A process killed between naming
/// the new file and renaming it over the old file leaves both files. A symbolic
/// link is followed; the permission bits of a replaced file are kept. Every
/// failure throws `c10::Error` with the path, the operation, the system's
/// reason and a remedy. The target is then unchanged, except if only the last
/// operation, flushing its folder, failed.
class AtomicFile {
 public:
  /// Opens the new file; the folder must exist.
  explicit AtomicFile(const std::string& path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Discards the new contents unless they were committed.
  ~AtomicFile();

  /// Appends `bytes` bytes.
  void write(const void* data, size_t bytes);

  /// Replaces `bytes` bytes at `offset`, which must already be written.
  void overwrite(size_t offset, const void* data, size_t bytes);

  /// Replaces the target with the new file, which is on the disk when `commit`
  /// returns. If `check`, called when only the renaming remains, throws, the
  /// target stays unchanged. Call this once, last.
  void commit(const std::function<void()>& check = nullptr);

 private:
  void open_unnamed();
  void open_named();
  void keep_permissions();
  void give_name();
  void sync_folder();
  [[noreturn]] void fail(const std::string& operation) const;

  std::string path_; // as passed by the caller, for messages
  std::string target_; // with symbolic links followed
  std::string folder_;
  std::string temporary_; // empty while the new file has no name
  FileDescriptor descriptor_;
  size_t size_ = 0;
};

} // namespace ddp::detail
