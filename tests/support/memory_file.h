#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

namespace ddp::test {

/// A file in memory, for tests that change a file very often: changes on a disk
/// would take too long.
class MemoryFile {
 public:
  /// Creates a link at `path` to the file, for this process and its forks.
  explicit MemoryFile(const std::string& path)
      : descriptor_(::memfd_create("ddp-test", MFD_CLOEXEC)) {
    std::filesystem::create_symlink(
        "/proc/self/fd/" + std::to_string(descriptor_), path);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() {
    ::close(descriptor_);
  }

  void set(const std::string& bytes) const {
    const auto size = static_cast<ssize_t>(bytes.size());
    if (::ftruncate(descriptor_, size) != 0 ||
        ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) != size) {
      throw std::system_error(errno, std::generic_category(), "MemoryFile");
    }
  }

 private:
  int descriptor_;
};

} // namespace ddp::test
