#include <launcher/output/log_file.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ddp {
namespace {

constexpr size_t kMaxMovedLine = 64 * 1024;

void make_folders_of(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    mkdir(path.substr(0, slash).c_str(), 0700); // or open() tells
  }
}

} // namespace

LogFile::LogFile(std::string path, int64_t max_bytes, Report report)
    : path_(std::move(path)),
      max_bytes_(max_bytes > 0 ? static_cast<size_t>(max_bytes) : SIZE_MAX),
      report_(std::move(report)) {
  make_folders_of(path_);
  unlink((path_ + ".1").c_str());
  open();
}

void LogFile::write(std::string_view bytes) {
  if (!file_ && !open()) {
    return;
  }
  while (bytes.size() > max_bytes_ - size_) {
    const std::string_view fitting = bytes.substr(0, max_bytes_ - size_);
    const size_t newline = fitting.rfind('\n');
    size_t cut = newline + 1; // 0 where there is none
    if (newline == std::string_view::npos &&
        (line_start_ == 0 || size_ - line_start_ > kMaxMovedLine)) {
      cut = fitting.size();
    }
    if (!append(bytes.substr(0, cut)) || !rotate()) {
      return;
    }
    bytes.remove_prefix(cut);
  }
  append(bytes);
}

bool LogFile::open() {
  file_ = FileDescriptor(::open(
      path_.c_str(),
      O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOCTTY,
      0600));
  size_ = 0;
  line_start_ = 0;
  return file_ || fail("open");
}

bool LogFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t result = ::write(file_.get(), bytes.data(), bytes.size());
    if (result < 0 && errno == EINTR) {
      continue;
    }
    if (result < 0) {
      return fail("write");
    }
    const auto written = static_cast<size_t>(result);
    const size_t newline = bytes.substr(0, written).rfind('\n');
    if (newline != std::string_view::npos) {
      line_start_ = size_ + newline + 1;
    }
    size_ += written;
    bytes.remove_prefix(written);
  }
  return true;
}

// The line that is not finished moves to the new file.
bool LogFile::rotate() {
  if (std::rename(path_.c_str(), (path_ + ".1").c_str()) != 0) {
    return fail("rename");
  }
  const std::string line = unfinished_line();
  const bool cut = line.empty() ||
      ftruncate(file_.get(), static_cast<off_t>(line_start_)) == 0;
  return open() && (!cut || append(line));
}

std::string LogFile::unfinished_line() const {
  const size_t size = size_ - line_start_;
  if (line_start_ == 0 || size > kMaxMovedLine) {
    return {};
  }
  std::string line(size, '\0');
  const ssize_t read =
      pread(file_.get(), line.data(), size, static_cast<off_t>(line_start_));
  return read == static_cast<ssize_t>(size) ? line : std::string();
}

bool LogFile::fail(const char* what) {
  if (!reported_) {
    reported_ = true;
    report_(
        std::string("ddprun: cannot ") + what + " the log file " + path_ +
        " (" + std::strerror(errno) + "); what ranks write there is lost");
  }
  return false;
}

} // namespace ddp
