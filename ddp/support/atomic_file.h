#pragma once

#include <common/file_descriptor.h>

#include <cstddef>
#include <string>

namespace ddp::detail {

/// What to do where the system refuses to write for the reason `error`, an
/// `errno`: "; free space, or ...". Empty if there is nothing to say.
std::string write_advice(int error);

/// Replaces a file as a whole: readers see the old content until `commit()`
/// returns, and the new one from then on.
///
/// What is written lives in a nameless file of the target's folder, so that
/// nothing is left behind however the process ends (`O_TMPFILE`, open(2)); on
/// file systems without it, in `.<name>.tmp.<pid>.<n>`. A process killed in the
/// instant between naming the new file and renaming it over the old one leaves
/// the old file and that name. A symbolic link is followed; the permission bits
/// of a file that is replaced are kept. Every failure throws `c10::Error` with
/// the path, the operation, the system's reason and what to try, and leaves the
/// target as it was, unless all that failed was flushing its folder in the end.
class AtomicFile {
 public:
  /// Opens the new file; the folder has to be there.
  explicit AtomicFile(const std::string& path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Discards what was written unless it was committed.
  ~AtomicFile();

  /// Appends `bytes` bytes.
  void write(const void* data, size_t bytes);

  /// Replaces `bytes` bytes at `offset`, which have been written before.
  void overwrite(size_t offset, const void* data, size_t bytes);

  /// Puts the file in the target's place, on the disk when this returns. Call
  /// it once, last.
  void commit();

 private:
  void open_unnamed();
  void open_named();
  void keep_permissions();
  void give_name();
  void sync_folder();
  [[noreturn]] void fail(const std::string& operation) const;

  std::string path_; // as the caller said it, for messages
  std::string target_; // with symbolic links followed
  std::string folder_;
  std::string temporary_; // empty while the new file has no name
  FileDescriptor descriptor_;
  size_t size_ = 0;
};

} // namespace ddp::detail
