#pragma once

#include <checkpoint/formats/common/digest.h>
#include <ddp/support/atomic_file.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace ddp::detail {

/// Writes a zip file of records that are stored and not compressed.
///
/// Their contents begin at multiples of 64 bytes, as in LibTorch's files, so
/// that a reader that maps the file has them aligned. Digests are added
/// (`zip::kDigestRecord`).
class ZipWriter {
 public:
  /// `file` has to be empty and outlive the writer.
  explicit ZipWriter(AtomicFile& file) : file_(file) {}

  /// Appends a record; each name once.
  void add(const std::string& name, const void* data, uint64_t bytes);

  /// Appends the digests and the directory. The file is complete then, but not
  /// committed.
  void finish();

 private:
  void add_headers(const std::string& name, uint32_t crc, uint64_t bytes);
  void write(const std::string& bytes);

  AtomicFile& file_;
  uint64_t position_ = 0;
  uint64_t count_ = 0;
  std::string directory_;
  std::string digests_;
  Digest structure_; // of all that is no record's content
};

} // namespace ddp::detail
