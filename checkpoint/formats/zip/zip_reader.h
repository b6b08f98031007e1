#pragma once

#include <checkpoint/formats/common/byte_source.h>

#include <map>
#include <vector>

namespace ddp::detail {

/// What a zip file says about one of its records.
struct ZipRecord {
  std::string name;
  /// Where its local header begins.
  uint64_t header = 0;
  /// Where its content begins, and its size.
  uint64_t offset = 0;
  uint64_t size = 0;
  uint32_t crc = 0;
  /// What it takes in the file, which differs where it is compressed.
  uint64_t stored_size = 0;
  bool compressed = false;
};

/// The records of a zip file. Those that are compressed cannot be read.
///
/// The directory is checked as a whole before anything of it is used: names are
/// unique, and no record overlaps another or leaves the file. Everything throws
/// `c10::Error` with what was seen and expected.
class ZipReader {
 public:
  /// Reads the directory; `source` has to outlive the reader.
  explicit ZipReader(const ByteSource& source);

  /// In the order of the directory.
  const std::vector<ZipRecord>& records() const {
    return records_;
  }

  /// The record of this name, or null.
  const ZipRecord* find(const std::string& name) const;

  /// The record's content, verified by its CRC-32; without `verify` that of a
  /// mapped file is not read.
  at::Tensor tensor(const ZipRecord& record, bool verify = true) const;
  std::string text(const ZipRecord& record) const;

  /// Verifies a record and keeps nothing of it.
  void verify(const ZipRecord& record) const;

 private:
  void read_directory();
  void find_content(ZipRecord& record) const;
  /// `order`: that of their bytes, which end before the directory.
  static void check_overlaps(
      const std::vector<ZipRecord*>& order,
      uint64_t directory);

  const ByteSource& source_;
  std::vector<ZipRecord> records_;
  std::map<std::string, size_t> by_name_;
};

} // namespace ddp::detail
