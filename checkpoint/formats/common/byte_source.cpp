#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <checkpoint/formats/common/byte_source.h>
#include <ddp/internal/check.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace ddp::detail {
namespace {

// Small enough that `see` gets the bytes while they are in the cache.
constexpr uint64_t kPiece = 256 * 1024;

// The alignment of the widest number that a tensor can contain.
constexpr uint64_t kTensorAlignment = 8;

// Calls `function(offset, bytes)` for each piece.
template <typename Function>
void for_pieces(uint64_t bytes, const Function& function) {
  for (uint64_t done = 0; done < bytes; done += kPiece) {
    function(done, static_cast<size_t>(std::min(kPiece, bytes - done)));
  }
}

void check_range(uint64_t offset, uint64_t bytes, uint64_t size) {
  DDP_CHECK(
      offset <= size && bytes <= size - offset,
      "truncated: expected {} bytes at byte {}, but the file has {} bytes",
      bytes,
      offset,
      size);
}

std::string reason() {
  return std::generic_category().message(errno);
}

} // namespace

at::Tensor ByteSource::tensor(
    uint64_t offset,
    uint64_t bytes,
    const SeeBytes& see) const {
  check_range(offset, bytes, size());
  auto result = at::empty({static_cast<int64_t>(bytes)}, at::kByte);
  auto* data = result.mutable_data_ptr<uint8_t>();
  for_pieces(bytes, [&](uint64_t done, size_t piece) {
    read(offset + done, data + done, piece);
    if (see) {
      see(data + done, piece);
    }
  });
  return result;
}

std::string ByteSource::text(uint64_t offset, uint64_t bytes) const {
  check_range(offset, bytes, size());
  std::string result(bytes, '\0');
  read(offset, result.data(), bytes);
  return result;
}

void ByteSource::scan(uint64_t offset, uint64_t bytes, const SeeBytes& see)
    const {
  check_range(offset, bytes, size());
  std::string buffer(std::min(kPiece, bytes), '\0');
  for_pieces(bytes, [&](uint64_t done, size_t piece) {
    read(offset + done, buffer.data(), piece);
    see(buffer.data(), piece);
  });
}

MemorySource::MemorySource(const void* data, uint64_t bytes)
    : data_(static_cast<const char*>(data)), size_(bytes) {}

uint64_t MemorySource::size() const {
  return size_;
}

void MemorySource::read(uint64_t offset, void* data, size_t bytes) const {
  check_range(offset, bytes, size_);
  if (bytes > 0) { // memcpy allows no null pointers
    std::memcpy(data, data_ + offset, bytes);
  }
}

void MemorySource::scan(uint64_t offset, uint64_t bytes, const SeeBytes& see)
    const {
  check_range(offset, bytes, size_);
  for_pieces(bytes, [&](uint64_t done, size_t piece) {
    see(data_ + offset + done, piece);
  });
}

FileSource::FileSource(const std::string& path)
    : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  DDP_CHECK(file_, reason());
  struct stat status {};
  DDP_CHECK(
      ::fstat(file_.get(), &status) == 0 && S_ISREG(status.st_mode),
      S_ISDIR(status.st_mode) ? "it is a directory"
                              : "it is not a regular file");
  size_ = static_cast<uint64_t>(status.st_size);
}

uint64_t FileSource::size() const {
  return size_;
}

void FileSource::read(uint64_t offset, void* data, size_t bytes) const {
  check_range(offset, bytes, size_);
  auto* target = static_cast<char*>(data);
  while (bytes > 0) {
    const auto got =
        ::pread(file_.get(), target, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    DDP_CHECK(got >= 0, reason());
    DDP_CHECK(
        got > 0,
        "reading {} bytes at byte {} returned none; has the file changed?",
        bytes,
        offset);
    target += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
}

std::shared_ptr<char> FileSource::map() const {
  if (size_ == 0) { // an empty file cannot be mapped
    return nullptr;
  }
  auto* data = ::mmap(
      nullptr,
      size_,
      PROT_READ | PROT_WRITE,
      MAP_PRIVATE | MAP_NORESERVE,
      file_.get(),
      0);
  DDP_CHECK(data != MAP_FAILED, "it cannot be mapped: {}", reason());
  return {static_cast<char*>(data), [bytes = size_](char* start) {
            ::munmap(start, bytes);
          }};
}

MappedSource::MappedSource(const FileSource& file)
    : MappedSource(file.map(), file.size()) {}

MappedSource::MappedSource(std::shared_ptr<char> data, uint64_t size)
    : MemorySource(data.get(), size), data_(std::move(data)) {}

at::Tensor MappedSource::tensor(
    uint64_t offset,
    uint64_t bytes,
    const SeeBytes& see) const {
  if (bytes == 0 || (see && offset % kTensorAlignment != 0)) {
    return ByteSource::tensor(offset, bytes, see);
  }
  check_range(offset, bytes, size());
  if (see) {
    scan(offset, bytes, see);
  }
  return at::from_blob(
      data_.get() + offset,
      {static_cast<int64_t>(bytes)},
      [mapping = data_](void* /*data*/) {},
      at::kByte);
}

CheckedSource::CheckedSource(const FileSource& file)
    : MappedSource(file), file_(file) {}

void CheckedSource::read(uint64_t offset, void* data, size_t bytes) const {
  file_.read(offset, data, bytes);
}

void CheckedSource::scan(uint64_t offset, uint64_t bytes, const SeeBytes& see)
    const {
  file_.scan(offset, bytes, see);
}

} // namespace ddp::detail
