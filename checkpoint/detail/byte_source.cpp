#include <c10/util/Exception.h>
#include <checkpoint/detail/byte_source.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace ddp::detail {
namespace {

void check_range(uint64_t offset, uint64_t bytes, uint64_t size) {
  TORCH_CHECK(
      offset <= size && bytes <= size - offset,
      "truncated: ",
      bytes,
      " bytes are expected at byte ",
      offset,
      ", it has ",
      size);
}

std::string reason() {
  return std::generic_category().message(errno);
}

} // namespace

MemorySource::MemorySource(const void* data, size_t bytes)
    : data_(static_cast<const char*>(data)), bytes_(bytes) {}

uint64_t MemorySource::size() const {
  return bytes_;
}

void MemorySource::read(uint64_t offset, void* data, size_t bytes) const {
  check_range(offset, bytes, bytes_);
  if (bytes > 0) { // neither pointer may be null otherwise
    std::memcpy(data, data_ + offset, bytes);
  }
}

FileSource::FileSource(const std::string& path)
    : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  TORCH_CHECK(descriptor_ >= 0, reason());
  struct stat status {};
  const bool regular =
      ::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
  if (!regular) { // the destructor does not run
    ::close(descriptor_);
  }
  TORCH_CHECK(
      regular,
      S_ISDIR(status.st_mode) ? "it is a directory" : "it is no regular file");
  size_ = static_cast<uint64_t>(status.st_size);
}

FileSource::~FileSource() {
  ::close(descriptor_);
}

uint64_t FileSource::size() const {
  return size_;
}

void FileSource::read(uint64_t offset, void* data, size_t bytes) const {
  check_range(offset, bytes, size_);
  auto* target = static_cast<char*>(data);
  while (bytes > 0) {
    const auto got =
        ::pread(descriptor_, target, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    TORCH_CHECK(got >= 0, reason());
    TORCH_CHECK(
        got > 0,
        "asked for ",
        bytes,
        " bytes at byte ",
        offset,
        " and got none; has it changed meanwhile?");
    target += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
}

} // namespace ddp::detail
