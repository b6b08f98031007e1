#pragma once

#include <ATen/core/Tensor.h>
#include <common/file_descriptor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace ddp::detail {

/// A function that receives bytes in order, piece by piece, while they are in
/// the cache; null for none.
using SeeBytes = std::function<void(const void* data, size_t bytes)>;

/// A known number of bytes that are read by position. Reading outside the range
/// throws `c10::Error`.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual uint64_t size() const = 0;

  /// Copies `bytes` bytes from `offset`.
  virtual void read(uint64_t offset, void* data, size_t bytes) const = 0;

  /// `bytes` bytes from `offset`, of dtype `kByte`, aligned for any dtype.
  virtual at::Tensor tensor(
      uint64_t offset,
      uint64_t bytes,
      const SeeBytes& see) const;

  std::string text(uint64_t offset, uint64_t bytes) const;

  /// Passes `bytes` bytes from `offset` to `see`, and keeps none of them.
  virtual void scan(uint64_t offset, uint64_t bytes, const SeeBytes& see) const;
};

/// Bytes in memory, which must outlive this object.
class MemorySource : public ByteSource {
 public:
  MemorySource(const void* data, uint64_t bytes);
  uint64_t size() const override;
  void read(uint64_t offset, void* data, size_t bytes) const override;
  void scan(uint64_t offset, uint64_t bytes, const SeeBytes& see)
      const override;

 private:
  const char* data_;
  uint64_t size_;
};

/// A file that is read, not mapped: if another program truncates it meanwhile,
/// or its network fails, the result is an error instead of SIGBUS.
class FileSource : public ByteSource {
 public:
  explicit FileSource(const std::string& path);
  uint64_t size() const override;
  void read(uint64_t offset, void* data, size_t bytes) const override;

  /// Maps the whole file, privately: writes do not change the file.
  std::shared_ptr<char> map() const;

 private:
  FileDescriptor file_;
  uint64_t size_ = 0;
};

/// A file that is mapped: its tensors are the file's pages, which processes on
/// one host share until the pages are written to. Tensors keep the mapping
/// alive. Without a SeeBytes function, tensors are neither read nor aligned.
class MappedSource : public MemorySource {
 public:
  explicit MappedSource(const FileSource& file);
  at::Tensor tensor(uint64_t offset, uint64_t bytes, const SeeBytes& see)
      const override;

 private:
  explicit MappedSource(std::shared_ptr<char> data, uint64_t size);

  std::shared_ptr<char> data_;
};

/// A file of which no tensor is used. Its bytes are read, so a failing disk is
/// an error instead of SIGBUS; its tensors are pages that are not read.
class CheckedSource : public MappedSource {
 public:
  /// `file` must outlive this object.
  explicit CheckedSource(const FileSource& file);
  void read(uint64_t offset, void* data, size_t bytes) const override;
  void scan(uint64_t offset, uint64_t bytes, const SeeBytes& see)
      const override;

 private:
  const FileSource& file_;
};

enum class FileAccess {
  kCopy, ///< FileSource
  kMap, ///< MappedSource
  kCheck, ///< CheckedSource
};

/// Calls `read(source)` with a source of the file.
template <typename Read>
auto read_file(const FileSource& file, FileAccess access, const Read& read) {
  switch (access) {
    case FileAccess::kMap:
      return read(MappedSource(file));
    case FileAccess::kCheck:
      return read(CheckedSource(file));
    default:
      return read(file);
  }
}

} // namespace ddp::detail
