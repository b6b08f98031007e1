#pragma once

#include <checkpoint/formats/common/byte_source.h>
#include <checkpoint/formats/pickle/pickle_writer.h>
#include <checkpoint/formats/zip/zip_reader.h>

#include <optional>

namespace ddp::detail {

/// A file written by `torch.save`, read from any source.
///
/// Functions throw `c10::Error` if the file is invalid; the error does not name
/// the file.
class TorchArchive {
 public:
  /// Reads the directory; `source` must outlive the archive.
  explicit TorchArchive(const ByteSource& source);

  /// Reads the whole value, and also verifies unused records. `strict` and
  /// `omitted` are as in `read_pickle`. Without `verify`, unused records and
  /// the storages of a mapped file are not read.
  c10::IValue value(
      bool strict = true,
      bool verify = true,
      std::vector<std::string>* omitted = nullptr) const;

  /// See `ZipReader`.
  bool has_checksums() const {
    return zip_.has_checksums();
  }

  /// The contents of another record, if it exists.
  std::optional<std::string> record(const std::string& name) const;

 private:
  std::string required(const std::string& name) const;

  ZipReader zip_;
  uint64_t size_;
  std::string prefix_; // the prefix of all names, with '/'
};

/// Writes the file at `path`; replaces an existing file atomically. `check` is
/// as in `AtomicFile::commit`.
void write_torch_archive(
    const std::string& path,
    const PickledValue& value,
    const std::function<void()>& check = nullptr);

} // namespace ddp::detail
