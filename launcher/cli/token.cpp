#include <launcher/cli/token.h>

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <common/file_descriptor.h>
#include <launcher/cli/options/option_values.h>
#include <launcher/remote/starter_link.h>

namespace ddp {

namespace {

// The file that is read is the one that was checked: another one may be at its
// path by then.
std::string first_line_of(const std::string& name, const std::string& path) {
  if (path == "-") {
    return read_first_line(STDIN_FILENO);
  }
  const FileDescriptor file(
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0) {
    usage_error(name + ": " + std::strerror(errno));
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    usage_error(name + ": others can read it; chmod 600 " + path);
  }
  if (status.st_uid != geteuid() && status.st_uid != 0) {
    usage_error(
        name + ": others can read it: it belongs to user " +
        std::to_string(status.st_uid) + "; chown " + std::to_string(geteuid()) +
        " " + path);
  }
  return read_first_line(file.get());
}

} // namespace

std::string token_of(const OptionValue& value) {
  const std::string name = value.source + " " + value.text;
  const std::string line = first_line_of(name, value.text);
  constexpr const char* spaces = " \t\r";
  const size_t first = line.find_first_not_of(spaces);
  if (first == std::string::npos) {
    usage_error(name + ": its first line is empty, expected the job's secret");
  }
  return line.substr(first, line.find_last_not_of(spaces) - first + 1);
}

} // namespace ddp
