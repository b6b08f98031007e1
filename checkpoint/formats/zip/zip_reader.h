#pragma once

#include <checkpoint/formats/common/byte_source.h>

#include <map>
#include <vector>

namespace ddp::detail {

/// The directory entry of a record in a zip file.
struct ZipRecord {
  std::string name;
  /// The offset of the local header.
  uint64_t header = 0;
  /// The offset and the size of the contents.
  uint64_t offset = 0;
  uint64_t size = 0;
  uint32_t crc = 0;
  /// The size in the file, which differs if the record is compressed.
  uint64_t stored_size = 0;
  bool compressed = false;
};

/// The records of a zip file. Compressed records cannot be read.
///
/// The whole directory is checked before it is used: names are unique, and
/// records neither overlap nor extend beyond the file. All functions throw
/// `c10::Error` with the found and the expected values.
class ZipReader {
 public:
  /// Reads the directory; `source` must outlive the reader.
  explicit ZipReader(const ByteSource& source);

  /// The records, in the order of the directory.
  const std::vector<ZipRecord>& records() const {
    return records_;
  }

  /// Whether records have a CRC-32: Python omits them, and writes 0, after
  /// `torch.serialization.set_crc32_options(False)`.
  bool has_checksums() const {
    return has_checksums_;
  }

  /// The record with this name, or null.
  const ZipRecord* find(const std::string& name) const;

  /// The record's content, verified by its CRC-32, if it has one; without
  /// `verify`, the content in a mapped file is not read.
  at::Tensor tensor(const ZipRecord& record, bool verify = true) const;
  std::string text(const ZipRecord& record) const;

  /// Verifies a record without keeping its contents.
  void verify(const ZipRecord& record) const;

 private:
  void find_content(ZipRecord& record) const;
  /// `order` contains the records sorted by offset; they must end before the
  /// directory.
  static void check_overlaps(
      const std::vector<ZipRecord*>& order,
      uint64_t directory);

  const ByteSource& source_;
  std::vector<ZipRecord> records_;
  bool has_checksums_ = false;
  std::map<std::string, size_t> by_name_;
};

} // namespace ddp::detail
