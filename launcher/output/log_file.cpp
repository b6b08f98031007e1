#include <launcher/output/log_file.h>

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>

namespace ddp {
namespace {

void make_folders_of(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    mkdir(path.substr(0, slash).c_str(), 0700); // or open() tells
  }
}

} // namespace

LogFile::LogFile(std::string path, Report report)
    : path_(std::move(path)), report_(std::move(report)) {
  make_folders_of(path_);
  open();
}

void LogFile::write(std::string_view bytes) {
  if (file_ || open()) {
    if (const int error = write_all(file_.get(), bytes)) {
      report("write", error);
    }
  }
}

bool LogFile::open() {
  file_ = FileDescriptor(::open(
      path_.c_str(),
      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY,
      0600));
  if (!file_) {
    report("open", errno);
  }
  return bool(file_);
}

void LogFile::report(const char* what, int error) {
  if (!reported_) {
    reported_ = true;
    report_(
        std::string("ddprun: cannot ") + what + " the log file " + path_ +
        " (" + std::strerror(error) + "); what ranks write there is lost");
  }
}

} // namespace ddp
