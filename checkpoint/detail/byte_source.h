#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ddp::detail {

/// Bytes of a known number that are read by position.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual uint64_t size() const = 0;

  /// Copies `bytes` bytes from `offset`; they have to be there.
  virtual void read(uint64_t offset, void* data, size_t bytes) const = 0;
};

/// Bytes in memory, which has to outlive it.
class MemorySource : public ByteSource {
 public:
  MemorySource(const void* data, size_t bytes);
  uint64_t size() const override;
  void read(uint64_t offset, void* data, size_t bytes) const override;

 private:
  const char* data_;
  size_t bytes_;
};

/// A file, read and not mapped: where another program truncates it meanwhile,
/// or the network that it is on fails, that is an error and not a SIGBUS.
class FileSource : public ByteSource {
 public:
  explicit FileSource(const std::string& path);
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;
  ~FileSource() override;
  uint64_t size() const override;
  void read(uint64_t offset, void* data, size_t bytes) const override;

 private:
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

} // namespace ddp::detail
