#include <ddp/internal/check.h>
#include <ddp/support/atomic_file.h>
#include <ddp/support/signals_blocked.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace ddp::detail {
namespace {

constexpr mode_t kNewFileMode = 0666; // minus the process's umask
constexpr int kMaxLinks = 40; // the kernel's limit

// The rename must replace the target of a link, not the link.
std::filesystem::path follow_links(std::filesystem::path path) {
  std::error_code error;
  for (int i = 0; i < kMaxLinks; ++i) {
    const auto next = std::filesystem::read_symlink(path, error);
    if (error) {
      break; // not a link
    }
    path = path.parent_path() / next;
  }
  return path;
}

std::string temporary_name(const std::filesystem::path& target) {
  static std::atomic<int> counter{0};
  auto name = "." + target.filename().string() + ".tmp." +
      std::to_string(::getpid()) + "." + std::to_string(counter++);
  return (target.parent_path() / name).string();
}

std::string link_to(int descriptor) {
  return "/proc/self/fd/" + std::to_string(descriptor);
}

// Writes all bytes, or returns false with errno set.
bool write_bytes(int descriptor, const char* data, size_t bytes, off_t offset) {
  // Sent above the limit on file sizes: by default, it ends the process.
  const auto limit_signal = SignalsBlocked::set_of({SIGXFSZ});
  const SignalsBlocked blocked(limit_signal);
  while (bytes > 0) {
    const auto written = ::pwrite(descriptor, data, bytes, offset);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      const int error = written == 0 ? EIO : errno;
      const timespec now{};
      ::sigtimedwait(&limit_signal, nullptr, &now);
      errno = error;
      return false;
    }
    data += written;
    offset += written;
    bytes -= static_cast<size_t>(written);
  }
  return true;
}

} // namespace

std::string write_advice(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return "; create the folder first, or correct the path";
    case EACCES:
    case EPERM:
    case EROFS:
      return "; choose a writable folder";
    case ENOSPC:
    case EDQUOT:
      return "; free space, or choose another disk (the new file needs space "
             "in addition to the old one)";
    case EFBIG:
      return "; raise the limit on file sizes (ulimit -f)";
    case EISDIR:
      return "; use the path of a file";
    default:
      return "";
  }
}

AtomicFile::AtomicFile(const std::string& path)
    : path_(path), target_(follow_links(path).string()) {
  folder_ = std::filesystem::path(target_).parent_path().string();
  folder_ = folder_.empty() ? "." : folder_;
  struct stat status {};
  if (::stat(target_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
    fail("replacing the existing file, which is not a regular file,");
  }
  open_unnamed();
  if (!descriptor_) {
    open_named();
  }
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
  }
}

void AtomicFile::open_unnamed() {
  FileDescriptor file(
      ::open(folder_.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kNewFileMode));
  // Without /proc, the file could not get a name later.
  if (file && ::access(link_to(file.get()).c_str(), F_OK) == 0) {
    descriptor_ = std::move(file);
  }
}

void AtomicFile::open_named() {
  do {
    temporary_ = temporary_name(target_);
    descriptor_ = FileDescriptor(::open(
        temporary_.c_str(),
        O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC,
        kNewFileMode));
  } while (!descriptor_ && errno == EEXIST);
  if (!descriptor_) {
    temporary_.clear();
    fail("creating a file in its folder");
  }
}

void AtomicFile::write(const void* data, size_t bytes) {
  size_ += bytes;
  overwrite(size_ - bytes, data, bytes);
}

void AtomicFile::overwrite(size_t offset, const void* data, size_t bytes) {
  TORCH_INTERNAL_ASSERT(offset + bytes <= size_);
  if (!write_bytes(
          descriptor_.get(),
          static_cast<const char*>(data),
          bytes,
          static_cast<off_t>(offset))) {
    fail("writing " + std::to_string(bytes) + " bytes");
  }
}

void AtomicFile::commit(const std::function<void()>& check) {
  keep_permissions();
  if (::fsync(descriptor_.get()) != 0) {
    fail("flushing it to the disk");
  }
  if (temporary_.empty()) {
    give_name();
  }
  if (check) {
    check();
  }
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    fail("renaming the new file over it");
  }
  temporary_.clear();
  sync_folder();
}

void AtomicFile::keep_permissions() {
  struct stat status {};
  if (::stat(target_.c_str(), &status) == 0 &&
      ::fchmod(descriptor_.get(), status.st_mode & 07777) != 0) {
    fail("setting its permissions");
  }
}

// linkat cannot replace a file, so the new file gets a name and is then
// renamed.
void AtomicFile::give_name() {
  int result = 0;
  do {
    temporary_ = temporary_name(target_);
    result = ::linkat(
        AT_FDCWD,
        link_to(descriptor_.get()).c_str(),
        AT_FDCWD,
        temporary_.c_str(),
        AT_SYMLINK_FOLLOW);
  } while (result != 0 && errno == EEXIST);
  if (result != 0) {
    temporary_.clear();
    fail("naming the new file");
  }
}

// The contents are on the disk, but not yet the name.
void AtomicFile::sync_folder() {
  const FileDescriptor folder(
      ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder && errno == EACCES) {
    return; // a folder may be writable and not readable
  }
  if (!folder) {
    fail("opening its folder to flush it to the disk");
  }
  // Some file systems do not support this.
  if (::fsync(folder.get()) != 0 && errno != EINVAL) {
    fail("flushing its folder to the disk");
  }
}

void AtomicFile::fail(const std::string& operation) const {
  const int error = errno;
  DDP_THROW(
      Error,
      "cannot write '{}': {} failed: {}{}",
      path_,
      operation,
      std::generic_category().message(error),
      write_advice(error));
}

} // namespace ddp::detail
